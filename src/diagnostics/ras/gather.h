// One question to all processes of the job: those that share a communicator with this one are asked directly, those
// that they know of through them. On the thread of its reactor only.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "diagnostics/ras/link.h"
#include "diagnostics/ras/messages.h"
#include "diagnostics/ras/registry.h"

namespace nitinol::ras {

struct Question {
  bool dumps = false;  ///< the flight recorders, too
  bool dumps_as_text = false;
  std::chrono::milliseconds patience{5000};
  friend bool operator==(const Question&, const Question&) = default;
};

/// Since when processes have been silent that nobody can see, over several questions.
class Silences {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Silences(std::chrono::milliseconds limit) : limit_(limit) {}
  void note(Job& job, Clock::time_point now = Clock::now());

 private:
  struct Silence {
    Clock::time_point since;
    Clock::time_point last;  ///< when a question was last given up
  };

  std::chrono::milliseconds limit_;  ///< who is silent for longer counts as dead
  std::map<std::uint64_t, Silence> silences_;
};

class Gather : public std::enable_shared_from_this<Gather> {
 public:
  using Done = std::function<void(Job)>;

  /// `done` is called once, never from within start(). Whoever holds the gather gives up by letting it go.
  static std::shared_ptr<Gather> start(Reactor& reactor, const Registry& registry, const Question& question, Done done);

  Gather(Reactor& reactor, const Registry& registry, const Question& question, Done done);
  ~Gather();

 private:
  struct Target {
    std::vector<std::uint64_t> route;  ///< whom to ask to pass it on
    std::shared_ptr<Link> link;
    bool settled = false;
  };

  void begin();
  void learn(ProcessReport report, const std::vector<std::uint64_t>& route);
  void note(const Sighting& sighting);
  void pump();
  void ask(std::uint64_t number);
  void on_outcome(std::uint64_t number, const std::optional<std::vector<std::byte>>& answer,
                  const std::string& trouble);
  void finish();

  Reactor& reactor_;
  const Registry& registry_;
  const Question question_;
  Done done_;
  std::chrono::steady_clock::time_point started_;
  std::optional<Reactor::Timer> timer_;
  Job job_;
  std::map<std::uint64_t, Target> targets_;
  std::map<std::uint64_t, ProcessState> sightings_;
  std::deque<std::uint64_t> queue_;  ///< not asked yet
  int open_ = 0;
};

}  // namespace nitinol::ras
