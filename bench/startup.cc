// How long n ranks take to meet: all are threads of this process, each joins through one unique id (or several), until
// the first barrier is through. Prints the median and the spread over the repeats; --json writes the same to a file.
//   startup [--most N] [--repeats R] [--ids I] [--json FILE]
#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "bootstrap/bootstrap.h"

namespace {

using nitinol::Bootstrap;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kStackBytes = 256 * 1024;

struct Arguments {
  int most = 1024;
  int repeats = 5;
  int ids = 1;
  std::string json;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--most") arguments.most = std::atoi(argv[i + 1]);
    if (name == "--repeats") arguments.repeats = std::max(1, std::atoi(argv[i + 1]));
    if (name == "--ids") arguments.ids = std::max(1, std::atoi(argv[i + 1]));
    if (name == "--json") arguments.json = argv[i + 1];
  }
  return arguments;
}

/// A thread with a small stack, so that a thousand of them cost little.
class SmallThread {
 public:
  explicit SmallThread(std::function<void()> body) : body_(std::move(body)) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    if (pthread_create(&thread_, &attributes, run, this) != 0) nitinol::fail(ncclSystemError, "cannot start a thread");
    pthread_attr_destroy(&attributes);
  }
  ~SmallThread() { pthread_join(thread_, nullptr); }
  SmallThread(const SmallThread&) = delete;
  SmallThread& operator=(const SmallThread&) = delete;

 private:
  static void* run(void* self) {
    static_cast<SmallThread*>(self)->body_();
    return nullptr;
  }
  std::function<void()> body_;
  pthread_t thread_{};
};

struct Times {
  double join_ms = 0;
  double all_gather_ms = 0;  // 64 bytes from each rank
};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

Times measure(int nranks, int ids_count) {
  nitinol::BootstrapOptions options;
  options.interfaces = "=lo";
  std::vector<nitinol::UniqueId> ids;
  for (int i = 0; i < std::min(ids_count, nranks); ++i) ids.push_back(nitinol::make_unique_id(options));
  std::vector<std::unique_ptr<Bootstrap>> all(static_cast<std::size_t>(nranks));
  const auto on_all = [&](const std::function<void(int)>& body) {
    const auto start = Clock::now();
    std::vector<std::unique_ptr<SmallThread>> threads;
    for (int rank = 0; rank < nranks; ++rank)
      threads.push_back(std::make_unique<SmallThread>([&body, rank] { body(rank); }));
    threads.clear();
    return milliseconds_since(start);
  };
  Times times;
  times.join_ms = on_all([&](int rank) {
    all[static_cast<std::size_t>(rank)] = Bootstrap::join({ids, rank, nranks, options, nullptr});
  });
  times.all_gather_ms = on_all([&](int rank) {
    const std::array<char, 64> mine{};
    all[static_cast<std::size_t>(rank)]->all_gather_value(mine);
  });
  for (const auto& one : all) one->shutdown();
  return times;
}

struct Summary {
  double median = 0;
  double least = 0;
  double most = 0;
};

Summary summarise(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

nlohmann::json to_json(const Summary& summary) {
  return {{"median_ms", summary.median}, {"least_ms", summary.least}, {"most_ms", summary.most}};
}

void run(const Arguments& arguments) {
  std::printf(
      "# start-up of the bootstrap: threads of one process over the loopback interface, %u cores, %d ids, %d repeats\n",
      std::thread::hardware_concurrency(), arguments.ids, arguments.repeats);
  std::printf("%8s %12s %12s %12s %18s\n", "ranks", "join ms", "least", "most", "all_gather 64B ms");
  nlohmann::json rows = nlohmann::json::array();
  for (int nranks = 2; nranks <= arguments.most; nranks *= 2) {
    std::vector<double> joins;
    std::vector<double> gathers;
    for (int i = 0; i < arguments.repeats; ++i) {
      const Times times = measure(nranks, arguments.ids);
      joins.push_back(times.join_ms);
      gathers.push_back(times.all_gather_ms);
    }
    const Summary join = summarise(joins);
    const Summary gather = summarise(gathers);
    std::printf("%8d %12.1f %12.1f %12.1f %18.1f\n", nranks, join.median, join.least, join.most, gather.median);
    std::fflush(stdout);
    rows.push_back({{"ranks", nranks}, {"join", to_json(join)}, {"all_gather", to_json(gather)}});
  }
  if (arguments.json.empty()) return;
  std::ofstream(arguments.json) << nlohmann::json{{"what", "bootstrap start-up, threads of one process"},
                                                  {"cores", std::thread::hardware_concurrency()},
                                                  {"ids", arguments.ids},
                                                  {"repeats", arguments.repeats},
                                                  {"rows", rows}}
                                       .dump(2)
                                << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "startup: %s\n", error.what());
    return 1;
  }
  return 0;
}
