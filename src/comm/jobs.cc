#include "comm/jobs.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"
#include "device/run_together_on.h"

namespace nitinol {

void tell_of_drop(std::span<const Job> jobs, const std::exception* why) noexcept {
  for (const Job& job : jobs) {
    try {
      if (job.dropped) job.dropped(why);
    } catch (const std::exception&) {  // it has been aborted, and is polled by nobody
    }
  }
}

void fail_communicator(Communicator& communicator, const std::exception& thrown) noexcept {
  const auto* const error = dynamic_cast<const Error*>(&thrown);
  if (error == nullptr) return communicator.fail_because(thrown);
  try {
    const Communicator::Visit visit(communicator);
    communicator.fail_with(error->code(), error->what(), true);
  } catch (const Error&) {  // it has been destroyed or aborted
  } catch (const std::exception& lack) {
    communicator.fail_because(lack);
  }
}

void give_up_making(const Job& job, const std::exception& thrown) {
  if (!job.made) return;
  const auto* const error = dynamic_cast<const Error*>(&thrown);
  if (error != nullptr && job.made->phase() == Phase::kInitialising) {
    job.made->give_up(*error);
  } else {
    fail_communicator(*job.made, thrown);
  }
}

void drop_jobs(std::span<const Job> jobs, const std::exception& thrown, bool by_intention) {
  tell_of_drop(jobs, by_intention ? nullptr : &thrown);
  for (const Job& job : jobs) {
    if (job.finished) job.finished(false);
    give_up_making(job, thrown);
  }
}

void begin(const Job& job) {
  try {
    if (job.begin) job.begin();
  } catch (const Error&) {  // it has been aborted, as it will say when it runs
  }
}

namespace {

/// One communicator's jobs, which come one after the other in the order of the calls, on all ranks alike.
struct Chain {
  std::vector<Job> jobs{};
  std::vector<std::exception_ptr> errors{};  ///< by job; null: it has succeeded

  Communicator& communicator() const { return *jobs.front().communicator; }
  Communicator::Awaits awaits() const {
    const auto awaits_no_rank = [](const Job& job) { return job.awaits == Communicator::Awaits::kNoRank; };
    return std::all_of(jobs.begin(), jobs.end(), awaits_no_rank) ? Communicator::Awaits::kNoRank
                                                                 : Communicator::Awaits::kRanks;
  }
  /// Takes no memory: the jobs tell the other ranks if there is none, and nobody else would.
  void run() {
    for (size_t i = 0; i < jobs.size(); ++i) {
      const bool repairs = communicator().failure_sentence() != nullptr;
      try {
        jobs[i].run();
      } catch (const std::exception& thrown) {
        errors[i] = std::current_exception();
        repairs ? communicator().note_failed_repair(thrown) : communicator().note_failed_call(thrown);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  }
  void throw_first_error() const {
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }
};

using Chains = std::vector<std::shared_ptr<Chain>>;

Chains chains_of(const std::vector<Job>& jobs) {
  Chains chains;
  for (const Job& job : jobs) {
    const auto same = std::find_if(chains.begin(), chains.end(), [&](const auto& chain) {
      return chain->jobs.front().communicator == job.communicator;
    });
    Chain& chain = same != chains.end() ? **same : *chains.emplace_back(std::make_shared<Chain>());
    chain.jobs.push_back(job);
    chain.errors.emplace_back();
  }
  return chains;
}

/// They have begun, and will never run.
void let_go(std::span<const Job> jobs) {
  for (const Job& job : jobs) {
    try {
      if (job.let_go) job.let_go();
    } catch (const std::exception&) {  // it has been aborted, and is polled by nobody
    }
  }
}

/// None of them has run, and those elsewhere who wait for what a job calls hear of it, one way or the other.
void give_up(const Chain& chain, const std::exception& thrown) noexcept {
  let_go(chain.jobs);
  tell_of_drop(chain.jobs, &thrown);
  for (const Job& job : chain.jobs) {
    if (!job.dropped) fail_communicator(*job.communicator, thrown);
    give_up_making(job, thrown);
  }
}

/// Runs all chains at the same time, since they wait for each other; throws the first error.
void run_and_wait(const Chains& chains) {
  try {
    run_together_on(
        chains.size(), [&](size_t i) { return chains[i]->communicator().device(); },
        [&](size_t i) { chains[i]->run(); });
  } catch (const std::exception& thrown) {
    for (const auto& chain : chains) {
      chain->errors.assign(chain->jobs.size(), std::current_exception());
      give_up(*chain, thrown);
    }
  }
  for (const auto& chain : chains) {
    for (size_t i = 0; i < chain->jobs.size(); ++i) {
      if (!chain->jobs[i].finished) continue;
      try {
        chain->jobs[i].finished(chain->errors[i] == nullptr);
      } catch (const std::exception&) {  // no memory for a handle: whoever is on the other ranks is to hear of it
        chain->errors[i] = std::current_exception();
        chain->jobs[i].finished(false);
      }
    }
  }
  for (const auto& chain : chains) chain->throw_first_error();
}

/// They have begun, but their group cannot go on: they end soon, and whoever polls is not to wait for that.
void stop_jobs(std::span<const Job> jobs, const std::exception& thrown) {
  for (const Job& job : jobs) {
    if (job.communicator != job.made) fail_communicator(*job.communicator, thrown);
    give_up_making(job, thrown);
  }
}

void begin(const std::shared_ptr<Chain>& chain) {
  const auto work = [chain] {
    chain->run();
    chain->throw_first_error();
  };
  chain->communicator().run_in_background(work, chain->awaits());
}

/// Of chains for which `begun` of them go on in the background, and no more ever will.
void end_all(const Chains& chains, size_t begun, const std::exception& why) {
  for (size_t i = 0; i < chains.size(); ++i) {
    if (i >= begun) {
      let_go(chains[i]->jobs);
      drop_jobs(chains[i]->jobs, why);
    }
    stop_jobs(chains[i]->jobs, why);
  }
}

void end_all_because(const Chains& chains, size_t begun, const std::exception& thrown) {
  try {
    const Error error(code_of(thrown), formatted("a group was not carried out: {}", sentence_of(thrown)));
    end_all(chains, begun, error);
  } catch (const std::bad_alloc& lack) {
    end_all(chains, begun, lack);
  }
}

}  // namespace

ncclResult_t run_jobs(const std::vector<Job>& jobs) {
  Chains chains;
  size_t begun_jobs = 0;
  try {
    chains = chains_of(jobs);
    while (begun_jobs < jobs.size()) begin(jobs[begun_jobs++]);
  } catch (const std::exception& thrown) {
    let_go({jobs.data(), begun_jobs});
    for (const Job& job : jobs) job.communicator->fail_because(thrown);
    drop_jobs(jobs, thrown);
    throw;
  }
  if (chains.front()->communicator().config().blocking) {
    run_and_wait(chains);
    return ncclSuccess;
  }
  size_t begun = 0;
  try {
    for (; begun < chains.size(); ++begun) begin(chains[begun]);
  } catch (const std::exception& thrown) {
    end_all_because(chains, begun, thrown);
    throw;
  }
  return ncclInProgress;
}

}  // namespace nitinol
