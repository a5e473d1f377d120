#include "diagnostics/ras/dump_signal.h"

#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/settings.h"
#include "base/words.h"
#include "bootstrap/waker.h"

namespace nitinol::ras {
namespace {

constexpr std::pair<std::string_view, int> kSignals[] = {
    {"HUP", SIGHUP},       {"INT", SIGINT},   {"QUIT", SIGQUIT},   {"USR1", SIGUSR1}, {"USR2", SIGUSR2},
    {"PIPE", SIGPIPE},     {"ALRM", SIGALRM}, {"TERM", SIGTERM},   {"URG", SIGURG},   {"XCPU", SIGXCPU},
    {"VTALRM", SIGVTALRM}, {"PROF", SIGPROF}, {"WINCH", SIGWINCH}, {"IO", SIGIO},     {"PWR", SIGPWR},
};

/// Never destroyed: the handler may run at any time, also when nobody is left who would look.
struct Watch {
  Waker waker;
  const Watch* before = nullptr;  ///< which was forgotten
};
std::atomic<const Watch*> last{nullptr};
std::atomic<const Waker*> waker{nullptr};

void on_signal(int) {
  const int saved = errno;
  if (const Waker* const found = waker.load()) found->wake();
  errno = saved;
}

}  // namespace

int parse_signal(std::string_view text) {
  if (const auto number = parse_integer(text)) {
    const bool sensible = *number > 0 && *number < 65 && *number != SIGKILL && *number != SIGSTOP &&
                          *number != SIGSEGV && *number != SIGBUS && *number != SIGFPE && *number != SIGILL &&
                          *number != SIGABRT;
    return sensible ? static_cast<int>(*number) : 0;
  }
  constexpr std::string_view kPrefix = "SIG";
  if (same_ignoring_case(text.substr(0, kPrefix.size()), kPrefix)) text.remove_prefix(kPrefix.size());
  for (const auto& [known, number] : kSignals) {
    if (same_ignoring_case(known, text)) return number;
  }
  return 0;
}

int watch_signal(int signal, std::string& trouble) {
  struct sigaction before {};
  if (sigaction(signal, nullptr, &before) != 0) {
    trouble = std::system_category().message(errno);
    return -1;
  }
  const bool ours = before.sa_handler == on_signal;
  const bool unused =
      (before.sa_flags & SA_SIGINFO) == 0 && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN);
  if (!ours && !unused) {
    trouble = "the program handles it itself";
    return -1;
  }
  if (waker.load() == nullptr) {
    try {
      auto* const fresh = new Watch;
      fresh->before = last.exchange(fresh);
      waker.store(&fresh->waker);
    } catch (const Error& error) {
      trouble = error.what();
      return -1;
    }
  }
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  if (!ours && sigaction(signal, &action, nullptr) != 0) {
    trouble = std::system_category().message(errno);
    return -1;
  }
  return waker.load()->fd();
}

void forget_signal_descriptor() { waker.store(nullptr); }

}  // namespace nitinol::ras
