#include "diagnostics/ras/gather.h"

#include "base/error.h"

namespace nitinol::ras {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostLinks = 512;                  // at a time
constexpr std::size_t kMostProcesses = 100'000;  // of a job
constexpr std::size_t kMostSilences = 100'000;
constexpr int kPausesInLimit = 6;  // a silence with longer ones between questions is not one
constexpr std::size_t kMostDumpBytes = std::size_t{256} << 20;

std::string seconds_text(Clock::duration time) {
  return formatted("{:.1f} s", std::chrono::duration<double>(time).count());
}

}  // namespace

/// What somebody sees holds. In a longer pause the process may have answered others.
void Silences::note(Job& job, Clock::time_point now) {
  const auto asked = now - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(job.seconds));
  if (silences_.size() > kMostSilences) silences_.clear();
  for (auto& [number, process] : job.processes) {
    if (process.report || process.hung_up || process.state != ProcessState::kUnknown) {
      silences_.erase(number);
      continue;
    }
    Silence& silence = silences_.try_emplace(number, Silence{now, now}).first->second;
    if (asked - silence.last > limit_ / kPausesInLimit) silence.since = now;
    silence.last = now;
    const auto silent = now - silence.since;
    if (silent < limit_) continue;
    process.state = ProcessState::kDead;
    process.trouble += formatted("; silent for {}, declared dead", seconds_text(silent));
  }
}

Gather::Gather(Reactor& reactor, const Registry& registry, const Question& question, Done done)
    : reactor_(reactor), registry_(registry), question_(question), done_(std::move(done)), started_(Clock::now()) {}

Gather::~Gather() {
  if (timer_) reactor_.cancel(*timer_);
}

std::shared_ptr<Gather> Gather::start(Reactor& reactor, const Registry& registry, const Question& question, Done done) {
  auto gather = std::make_shared<Gather>(reactor, registry, question, std::move(done));
  reactor.post([weak = std::weak_ptr(gather)] {
    if (const auto self = weak.lock()) self->begin();
  });
  return gather;
}

void Job::take(std::vector<RankDump> more, std::size_t most_bytes) {
  for (RankDump& dump : more) {
    if (dump.text.empty() || dump_bytes + dump.text.size() > most_bytes) {
      left_out.push_back({dump.id, dump.rank, ""});
    } else {
      dump_bytes += dump.text.size();
      dumps.push_back(std::move(dump));
    }
  }
}

void Gather::begin() {
  timer_ = reactor_.run_after(question_.patience, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->finish();
  });
  ProcessReport own = registry_.report({});
  job_.asked = own.name;
  targets_[own.name.number].settled = true;
  job_.processes[own.name.number].name = own.name;
  if (question_.dumps) job_.take(registry_.dumps(question_.dumps_as_text), kMostDumpBytes);
  learn(std::move(own), {});
  pump();
}

/// `route`: to those of whom the report is the first to tell.
void Gather::learn(ProcessReport report, const std::vector<std::uint64_t>& route) {
  for (Roster& roster : report.rosters) {
    if (roster.processes.size() > kMostProcesses) continue;
    for (const ProcessName& process : roster.processes) {
      if (targets_.size() >= kMostProcesses) break;
      const auto [target, fresh] = targets_.try_emplace(process.number);
      if (!fresh) continue;
      target->second.route = route;
      job_.processes[process.number].name = process;
      queue_.push_back(process.number);
    }
    const CommunicatorId id = roster.id;
    job_.communicators.try_emplace(id, std::move(roster));
  }
  report.rosters.clear();
  for (const Sighting& sighting : report.sightings) note(sighting);
  job_.processes[report.name.number].report = std::move(report);
}

/// Others look at other times: who is dead for one of them is dead.
void Gather::note(const Sighting& sighting) {
  ProcessState& state = sightings_.try_emplace(sighting.process, sighting.state).first->second;
  if (state != ProcessState::kDead) state = sighting.state;
}

void Gather::pump() {
  while (open_ < kMostLinks && !queue_.empty()) {
    const std::uint64_t number = queue_.front();
    queue_.pop_front();
    ask(number);
  }
  if (open_ == 0 && queue_.empty()) finish();
}

void Gather::ask(std::uint64_t number) {
  Target& target = targets_[number];
  if (target.route.size() > Ask::kMostHops) {
    target.settled = true;
    job_.processes[number].trouble = "it is too many processes away";
    return;
  }
  Ask message;
  message.what = question_.dumps ? Ask::What::kReportAndDumps : Ask::What::kReport;
  message.dumps_as_text = question_.dumps_as_text;
  const auto left = question_.patience - (Clock::now() - started_);
  message.patience_ms = static_cast<std::uint32_t>(
      std::max<std::int64_t>(1, std::chrono::duration_cast<std::chrono::milliseconds>(left).count()));
  for (const auto& [id, roster] : job_.communicators) {
    if (message.known.size() == Ask::kMostKnown) break;
    message.known.push_back(id);
  }
  std::uint64_t first = number;
  if (!target.route.empty()) {
    first = target.route.front();
    message.hops.assign(target.route.begin() + 1, target.route.end());
    message.hops.push_back(number);
  }
  ++open_;
  target.link = Link::start(reactor_, registry_.contacts(first), encode(message),
                            [weak = weak_from_this(), number](const auto& answer, const std::string& trouble) {
                              if (const auto self = weak.lock()) self->on_outcome(number, answer, trouble);
                            });
}

void Gather::on_outcome(std::uint64_t number, const std::optional<std::vector<std::byte>>& answer,
                        const std::string& trouble) {
  Target& target = targets_[number];
  const bool hung_up = target.link->has_hung_up();
  target.link.reset();
  target.settled = true;
  --open_;
  std::optional<Tell> tell;
  if (answer) tell = decode_tell(*answer);
  job_.processes[number].hung_up = hung_up || (tell && tell->hung_up);
  std::string& told = job_.processes[number].trouble;
  if (!answer) {
    told = trouble;
  } else if (!tell || (tell->trouble.empty() && tell->report.name.number != number)) {
    told = "its answer makes no sense";
  } else if (!tell->trouble.empty()) {
    told = tell->trouble;
  } else {
    job_.take(std::move(tell->dumps), kMostDumpBytes);
    std::vector<std::uint64_t> route = target.route;
    route.push_back(number);
    learn(std::move(tell->report), route);
  }
  pump();
}

void Gather::finish() {
  const auto self = shared_from_this();
  if (timer_) reactor_.cancel(*timer_);
  timer_.reset();
  const Done done = std::exchange(done_, nullptr);
  if (!done) return;
  const auto took = Clock::now() - started_;
  for (auto& [number, target] : targets_) {
    target.link.reset();
    JobProcess& process = job_.processes[number];
    if (!target.settled) process.trouble = "no answer within " + seconds_text(took);
    const auto seen = sightings_.find(number);
    if (!process.report && seen != sightings_.end()) process.state = seen->second;
  }
  job_.seconds = std::chrono::duration<double>(took).count();
  done(std::move(job_));
}

}  // namespace nitinol::ras
