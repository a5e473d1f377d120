#include "executor/verify/verifier.h"

#include <functional>
#include <memory>
#include <optional>
#include <random>

#include "executor/verify/combine.h"
#include "executor/verify/describe.h"
#include "executor/verify/inspect.h"
#include "executor/verify/layout.h"
#include "executor/verify/memory.h"
#include "executor/verify/order.h"

namespace nitinol::verify {
namespace {

using algorithm::Peers;
using algorithm::Program;
using algorithm::Replay;
using algorithm::Side;
using algorithm::Step;

/// One run of a program on symbols.
class Run {
 public:
  Run(const Program& program, const Options& options);
  Report take();

 private:
  struct Rank {
    Layout layout;
    std::optional<Layout::InPlace> in_place;  ///< if this run is and the rank can
    Memory output;                            ///< in place: the larger buffer, which holds both
    int input = 0;                            ///< its input's elements as they are
    int contribution = 0;                     ///< the same, scaled
  };

  void interpret();
  bool starves(int process) const;
  void on(const Replay::Event& event);
  Pieces own_of(const Replay::Event& event);
  Pieces input_of(const Replay::Event& event);
  void put(const Replay::Event& event, const Pieces& pieces);
  bool is_result(int value, const Expected& expected) const;
  void check_ends();
  void check_block(int rank, size_t block);
  void explain(int rank, const std::string& where, const Memory::Cell& cell, const Expected& expected);
  void complain_of_rank(int rank, Fault fault, const std::string& text);
  void complain_of_process(int process, Fault fault, const std::string& text);

  const Program& program_;
  const algorithm::Task& task_;
  const Options options_;
  const bool reduces_;
  Replay replay_;
  std::optional<Order> order_;  ///< of parts
  Values values_;
  std::vector<Rank> ranks_;
  std::vector<std::shared_ptr<const Pieces>> slots_;     ///< connection * slots + message % slots
  std::vector<std::shared_ptr<const Pieces>> messages_;  ///< that the present transfer takes
  std::vector<const Pieces*> sources_;                   ///< that it combines
  Report report_;
  bool broken_ = false;  ///< what would follow makes no sense
};

Run::Run(const Program& program, const Options& options)
    : program_(program),
      task_(program.task),
      options_(options),
      reduces_(reduces(task_.what)),
      replay_(program, options.slots),
      ranks_(task_.ranks) {
  if (program.parts > 1) order_.emplace(program, options.slots);
  for (int rank = 0; rank < task_.ranks; ++rank) {
    Rank& mine = ranks_[rank];
    mine.layout = layout_of(task_, rank);
    mine.input = values_.number_of({Value::Shape::kOne, false, false, {{rank, rank + 1}}});
    mine.contribution = values_.number_of({Value::Shape::kOne, reduces_, false, {{rank, rank + 1}}});
    if (!options.in_place || !mine.layout.in_place) continue;
    mine.in_place = mine.layout.in_place;
    const size_t count = mine.layout.input_blocks * task_.share.stride;
    if (count > 0) mine.output.write(mine.in_place->input, {{count, 0, mine.input}}, Memory::Mark::kInput);
  }
}

void Run::complain_of_rank(int rank, Fault fault, const std::string& text) {
  if (report_.findings.size() < kMostFindings) report_.findings.push_back({fault, rank, text});
}

void Run::complain_of_process(int process, Fault fault, const std::string& text) {
  const int part = program_.parts > 1 ? program_.part_of(process) : -1;
  if (report_.findings.size() < kMostFindings) {
    report_.findings.push_back({fault, program_.rank_of(process), text, part});
  }
}

Report Run::take() {
  inspect(program_, options_.in_place, report_);
  if (report_.right()) {
    interpret();
    if (!broken_) check_ends();
    if (order_) order_->check(options_.in_place, kMostFindings, report_);
  }
  return std::move(report_);
}

void Run::interpret() {
  std::mt19937_64 random(options_.seed);
  const auto visit = [&](const Replay::Event& event) {
    if (!broken_) on(event);
    if (!broken_ && order_) order_->note(replay_, event);
  };
  replay_.run([&](const std::vector<int>& ready) { return (options_.seed ? random() : 0) % ready.size(); }, visit,
              [&](int process) { return starves(process); });
}

bool Run::starves(int process) const {
  const Starved& starved = options_.starved;
  const int part = program_.part_of(process) - starved.first_part;
  return part >= 0 && part < starved.parts && (starved.rank < 0 || starved.rank == program_.rank_of(process));
}

Pieces Run::input_of(const Replay::Event& event) {
  const Rank& mine = ranks_[event.rank];
  const size_t offset = event.step.own;
  const size_t count = event.step.count;
  if (mine.in_place) {
    const Pieces found = mine.output.read(mine.in_place->input + offset, count);
    size_t at = offset;
    for (const Piece& piece : found) {
      if (piece.value != mine.input || piece.element != at) {
        complain_of_process(event.process, Fault::kOverwrittenInput,
                            "input[" + std::to_string(at) + "," + std::to_string(at + piece.count) +
                                ") is read but holds " + values_[piece.value].text());
      }
      at += piece.count;
    }
  }
  return {{count, offset, mine.contribution}};
}

Pieces Run::own_of(const Replay::Event& event) {
  const Step& step = event.step;
  if (step.own_side == Side::kInput) return input_of(event);
  Rank& mine = ranks_[event.rank];
  Pieces found = mine.output.read((mine.in_place ? mine.in_place->output : 0) + step.own, step.count);
  for (const Piece& piece : found) {
    if (piece.value == 0) complain_of_process(event.process, Fault::kUnwrittenRead, describe(step));
  }
  return found;
}

void Run::on(const Replay::Event& event) {
  const Step& step = event.step;
  messages_.clear();
  for (const int index : event.incoming) {
    const Replay::Connection& queue = replay_.connections()[index];
    messages_.push_back(std::move(slots_[index * options_.slots + queue.received % options_.slots]));
    const size_t length = count_of(*messages_.back());
    if (length == step.count) continue;
    complain_of_process(event.process, Fault::kLengthMismatch,
                        describe(step) + " expects " + std::to_string(step.count) + " elements, but rank " +
                            std::to_string(queue.from) + " sent " + std::to_string(length));
    broken_ = true;
    return;
  }
  const Pieces own = step.flow.own ? own_of(event) : Pieces{};
  sources_.clear();
  for (const auto& message : messages_) sources_.push_back(message.get());
  // The canonical order: the own span stands at the own rank; behind the message of a single peer.
  const size_t place = step.flow.from == Peers::kAll ? static_cast<size_t>(event.rank) : sources_.size();
  if (step.flow.own) sources_.insert(sources_.begin() + place, &own);
  const auto complain_of_step = [&](Fault fault, const std::string& text) {
    complain_of_process(event.process, fault, describe(step) + ": " + text);
  };
  const auto result = std::make_shared<const Pieces>(
      combine(sources_, {task_.ranks, reduces_, step.flow.finish}, values_, std::cref(complain_of_step)));
  if (step.flow.into) put(event, *result);
  slots_.resize(replay_.connections().size() * options_.slots);
  for (const int index : event.outgoing) {
    slots_[index * options_.slots + replay_.connections()[index].sent % options_.slots] = result;
  }
}

bool Run::is_result(int value, const Expected& expected) const {
  const Value& found = values_[value];
  if (options_.canonical && options_.in_steps && found.shape == Value::Shape::kInSteps) {
    Value in_one = found;
    in_one.shape = Value::Shape::kRankOrder;
    return in_one == expected.value;
  }
  if (options_.canonical || !reduces_) return found == expected.value;
  return found.finished && found.scaled && found.ranks == expected.value.ranks;
}

void Run::put(const Replay::Event& event, const Pieces& pieces) {
  Rank& mine = ranks_[event.rank];
  size_t offset = event.step.into;
  const size_t base = mine.in_place ? mine.in_place->output : 0;
  const size_t block = offset / task_.share.stride;
  const Expected expected = expected_in(task_, event.rank, block);
  mine.output.walk(base + offset, base + offset + count_of(pieces),
                   [&](size_t begin, size_t end, const Memory::Cell* cell) {
                     if (cell == nullptr || cell->mark != Memory::Mark::kResult) return;
                     complain_of_process(event.process, Fault::kWrittenTwice,
                                         "output[" + std::to_string(begin - base) + "," + std::to_string(end - base) +
                                             ") is written again, though it was right");
                   });
  for (const Piece& piece : pieces) {
    const size_t element = expected.element + offset - block * task_.share.stride;
    const bool right = is_result(piece.value, expected) && piece.element == element;
    mine.output.write(base + offset, {piece}, right ? Memory::Mark::kResult : Memory::Mark::kScratch);
    offset += piece.count;
  }
}

void Run::explain(int rank, const std::string& where, const Memory::Cell& cell, const Expected& expected) {
  const Value& found = values_[cell.value];
  const std::string text = where + " holds " + found.text();
  if (found.shape == Value::Shape::kNothing) return complain_of_rank(rank, Fault::kUnwrittenRead, text);
  if (reduces_ && found.ranks != expected.value.ranks) return complain_of_rank(rank, Fault::kMissingContribution, text);
  if (found.ranks != expected.value.ranks) {
    return complain_of_rank(rank, Fault::kWrongBlock, text + ", not " + expected.value.text());
  }
  if (found.scaled != expected.value.scaled) return complain_of_rank(rank, Fault::kWrongScalar, text);
  if (found.finished != expected.value.finished) return complain_of_rank(rank, Fault::kWrongFinish, text);
  if (!is_result(cell.value, expected)) return complain_of_rank(rank, Fault::kWrongOrder, text + " in another order");
  complain_of_rank(rank, Fault::kWrongBlock, where + " holds the values of other elements");
}

void Run::check_block(int rank, size_t block) {
  const Rank& mine = ranks_[rank];
  const size_t base = mine.in_place ? mine.in_place->output : 0;
  const size_t start = block * task_.share.stride;
  const Expected expected = expected_in(task_, rank, block);
  const auto visit = [&](size_t begin, size_t end, const Memory::Cell* cell) {
    if (cell != nullptr && cell->mark == Memory::Mark::kResult) return;
    const std::string where = "output[" + std::to_string(begin - base) + "," + std::to_string(end - base) + ")";
    if (cell == nullptr || cell->mark == Memory::Mark::kInput) return complain_of_rank(rank, Fault::kNotWritten, where);
    explain(rank, where, *cell, expected);
  };
  mine.output.walk(base + start + task_.share.begin, base + start + task_.share.end, visit);
}

void Run::check_ends() {
  bool stuck = false;
  for (int process = 0; process < program_.processes(); ++process) {
    if (replay_.ended(process)) continue;
    stuck = true;
    complain_of_process(process, Fault::kDeadlock, describe_wait(program_, replay_, process));
  }
  if (stuck) return;
  for (const Replay::Connection& queue : replay_.connections()) {
    if (queue.sent == queue.received) continue;
    complain_of_rank(queue.to, Fault::kLeftOver,
                     std::to_string(queue.sent - queue.received) + " messages from rank " + std::to_string(queue.from) +
                         (program_.streams > 1 ? " on stream " + std::to_string(queue.stream) : ""));
  }
  for (int rank = 0; rank < task_.ranks; ++rank) {
    for (size_t block = 0; block < ranks_[rank].layout.output_blocks; ++block) check_block(rank, block);
  }
}

}  // namespace

Report verify(const Program& program, const Options& options) { return Run(program, options).take(); }

}  // namespace nitinol::verify
