// What there is once per process, from the settings to the thread.
#include "diagnostics/ras/ras.h"

#include <pthread.h>

#include <cstdlib>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "bootstrap/network.h"
#include "diagnostics/ras/dump_signal.h"
#include "diagnostics/ras/registry.h"
#include "diagnostics/ras/service.h"

namespace nitinol::ras {

/// Left behind in the child of a fork, which makes its own: its locks may be held by threads that are not there.
class Process {
 public:
  static Process& instance();
  static bool is_current(const Process* process);

  void take_seat(const Newcomer& newcomer, Subject& subject);
  void leave_seat(const CommunicatorId& id, int rank);
  void note_failure(const CommunicatorId& id, int rank);
  void finish_dumps();
  void watch_dump_signal();

 private:
  void start_service();
  std::shared_ptr<Service> service() const {
    const std::lock_guard lock(service_mutex_);
    return service_;
  }
  std::shared_ptr<Service> exchange_service(std::shared_ptr<Service> service) {
    const std::lock_guard lock(service_mutex_);
    return std::exchange(service_, std::move(service));
  }

  Registry registry_;
  std::mutex seating_;  // held while seats are taken and left, and the service is started and stopped
  std::atomic<bool> dumps_on_failure_{false};
  mutable std::mutex service_mutex_;  // guards what follows
  std::shared_ptr<Service> service_;
};

namespace {

constexpr const char* kDefaultDumpFile = "nitinol-%h-%p-%c-%r.json";

std::atomic<Process*> current{nullptr};

void forget_in_child() {
  current.store(nullptr);
  forget_signal_descriptor();
}

/// At the end of the process: programs tend to end as soon as they see a failure, before its dump is written.
void finish_dumps_at_exit() {
  try {
    if (Process* const process = current.load()) process->finish_dumps();
  } catch (const std::exception&) {  // there is nobody to tell
  }
}

int dump_descriptor() {
  const auto text = settings().text_if_set(Setting::kDumpSignal);
  if (!text) return -1;
  const int signal = parse_signal(*text);
  if (signal == 0) {
    log_note("NITINOL_DUMP_SIGNAL={} is no signal that could be used: no dumps on a signal", *text);
    return -1;
  }
  std::string trouble;
  const int descriptor = watch_signal(signal, trouble);
  if (descriptor < 0) log_note("NITINOL_DUMP_SIGNAL={}: no dumps on this signal: {}", *text, trouble);
  return descriptor;
}

/// Whether the settings ask for anything of this folder.
bool wanted() {
  const Settings& s = settings();
  return s.flag(Setting::kRasEnable) || s.text_if_set(Setting::kDumpFile) || s.text_if_set(Setting::kDumpSignal);
}

}  // namespace

Process& Process::instance() {
  static const int installed = pthread_atfork(nullptr, nullptr, forget_in_child);
  static_cast<void>(installed);
  Process* process = current.load();
  if (process != nullptr) return *process;
  auto* const fresh = new Process();
  if (current.compare_exchange_strong(process, fresh)) return *fresh;
  delete fresh;
  return *process;
}

bool Process::is_current(const Process* process) { return current.load() == process; }

void Process::start_service() {
  const auto pattern = settings().text_if_set(Setting::kDumpFile);
  registry_.set_dump_pattern(pattern.value_or(kDefaultDumpFile));
  dumps_on_failure_ = pattern.has_value();
  static const int installed = dumps_on_failure_ ? std::atexit(finish_dumps_at_exit) : 0;
  static_cast<void>(installed);
  ServiceOptions options = options_from_settings();
  options.dump_descriptor = dump_descriptor();
  exchange_service(std::make_shared<Service>(std::move(options), registry_));
}

void Process::take_seat(const Newcomer& newcomer, Subject& subject) {
  const std::lock_guard lock(seating_);
  if (!service()) start_service();
  registry_.enter(newcomer, subject);
  if (!settings().flag(Setting::kRasEnable) || !registry_.needs_service(newcomer.id)) return;
  const auto accepted = [weak = std::weak_ptr(service())](UniqueFd fd) {
    if (const auto service = weak.lock()) service->let_in(std::move(fd));
  };
  try {
    registry_.keep_service(newcomer.id, Network::instance().services().add({ras_key(newcomer.secret), accepted}));
  } catch (...) {
    registry_.leave(newcomer.id, newcomer.rank);
    throw;
  }
}

void Process::leave_seat(const CommunicatorId& id, int rank) {
  const std::lock_guard lock(seating_);
  try {
    if (dumps_on_failure_) registry_.want_dumps_of_failures();  // whoever saw one may leave before it was noted
  } catch (const std::exception&) {  // there is no memory for it; the rank leaves all the same
  }
  registry_.leave(id, rank);
  if (!registry_.empty()) return;
  auto last = exchange_service(nullptr);
  if (last && !last->stop()) Service::leave_behind(std::move(last));  // its thread may still use it
}

/// What is wrong with it is noted when the first seat is taken.
void Process::watch_dump_signal() {
  const std::lock_guard lock(seating_);
  std::string trouble;
  const int signal = parse_signal(settings().text(Setting::kDumpSignal));
  if (signal != 0) static_cast<void>(watch_signal(signal, trouble));
}

void Process::note_failure(const CommunicatorId& id, int rank) {
  if (!dumps_on_failure_) return;
  registry_.want_dump_of_failure(id, rank);
  if (const auto running = service()) running->write_due_dumps();
}

void Process::finish_dumps() {
  if (!dumps_on_failure_) return;
  if (const auto running = service()) running->finish_dumps();
}

void watch_dump_signal() noexcept {
  try {
    if (settings().text_if_set(Setting::kDumpSignal)) Process::instance().watch_dump_signal();
  } catch (const std::exception&) {  // there is no memory for it, which others will tell of
  }
}

void Seat::take(const Newcomer& newcomer, Subject& subject) {
  if (newcomer.peers.size() < 2 || !wanted()) return;
  const std::lock_guard lock(mutex_);
  Process& process = Process::instance();
  try {
    process.take_seat(newcomer, subject);
  } catch (const std::exception& error) {
    log_note("rank {}: no health monitoring: {}", newcomer.rank, error.what());
    return;
  }
  process_ = &process;
  id_ = newcomer.id;
  rank_ = newcomer.rank;
}

void Seat::leave() {
  Process* process = nullptr;
  {
    const std::lock_guard lock(mutex_);
    process = std::exchange(process_, nullptr);
  }
  if (process != nullptr && Process::is_current(process)) process->leave_seat(id_, rank_);
}

void Seat::note_failure() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    if (process_ != nullptr && Process::is_current(process_)) process_->note_failure(id_, rank_);
  } catch (const std::exception&) {  // no memory to have it written now; it is when the rank leaves
  }
}

}  // namespace nitinol::ras
