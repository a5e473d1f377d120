#include "executor/verify/combine.h"

#include <algorithm>
#include <utility>

namespace nitinol::verify {
namespace {

using Shape = Value::Shape;

/// Sorts and joins runs of ranks.
void tidy(std::vector<std::pair<int, int>>& runs, const Complain& complain) {
  if (!std::is_sorted(runs.begin(), runs.end())) std::sort(runs.begin(), runs.end());
  size_t kept = 0;
  for (size_t i = 1; i < runs.size(); ++i) {
    if (runs[i].first < runs[kept].second) {
      complain(Fault::kDoubleContribution, "rank " + std::to_string(runs[i].first) + " contributes twice");
    }
    if (runs[i].first <= runs[kept].second) {
      runs[kept].second = std::max(runs[kept].second, runs[i].second);
    } else {
      runs[++kept] = runs[i];
    }
  }
  runs.resize(runs.empty() ? 0 : kept + 1);
}

void check_source(const Value& source, const Complain& complain) {
  if (source.shape == Shape::kNothing) complain(Fault::kUnwrittenRead, "combines elements that were never written");
  if (source.finished) complain(Fault::kWrongFinish, "combines " + source.text() + " further");
  if (!source.scaled) complain(Fault::kWrongScalar, "combines " + source.text() + " without its scalar");
}

/// Of two ranks' elements the result is the same either way.
void order_pair(std::vector<int>& sources, const Values& values) {
  if (sources.size() != 2) return;
  const Value& first = values[sources[0]];
  const Value& second = values[sources[1]];
  const bool is_pair = first.shape == Shape::kOne && second.shape == Shape::kOne;
  if (is_pair && first.ranks > second.ranks) std::swap(sources[0], sources[1]);
}

Value reduce(const std::vector<int>& sources, const Values& values, const Complain& complain) {
  const Shape first = values[sources.front()].shape;
  const bool goes_on = first == Shape::kRankOrder || first == Shape::kInSteps;
  Value result{goes_on ? Shape::kInSteps : Shape::kRankOrder, true, false, {}};
  for (const int number : sources) {
    const Value& source = values[number];
    check_source(source, complain);
    const bool follows =
        result.ranks.empty() || source.ranks.empty() || source.ranks.front().first >= result.ranks.back().second;
    const bool fits = source.shape == Shape::kOne || (goes_on && number == sources.front());
    if (!fits || !follows) result.shape = Shape::kOther;
    result.scaled = result.scaled && source.scaled;
    for (const auto& run : source.ranks) {
      const bool joins = !result.ranks.empty() && result.ranks.back().second == run.first;
      if (joins) {
        result.ranks.back().second = run.second;
      } else {
        result.ranks.push_back(run);
      }
    }
  }
  tidy(result.ranks, complain);
  return result;
}

void finish(Value& value, const CombineRules& rules, const Complain& complain) {
  if (!rules.reduces) complain(Fault::kWrongFinish, "finishes in a collective that only moves data");
  if (value.finished) complain(Fault::kWrongFinish, "finishes " + value.text() + " again");
  if (rules.reduces && (value.ranks.size() != 1 || value.ranks[0] != std::pair(0, rules.ranks))) {
    complain(Fault::kMissingContribution, "finishes with " + value.text() + " of " + std::to_string(rules.ranks));
  }
  value.finished = true;
}

}  // namespace

Pieces combine(const std::vector<const Pieces*>& sources, const CombineRules& rules, Values& values,
               const Complain& complain) {
  if (sources.size() == 1 && !rules.finish) return *sources[0];
  if (sources.size() > 1 && !rules.reduces) {
    complain(Fault::kMalformed, "combines in a collective that only moves data");
  }
  struct Cursor {
    size_t index = 0;
    size_t done = 0;  ///< elements of the piece at index
  };
  std::vector<Cursor> cursors(sources.size());
  std::vector<int> numbers(sources.size());
  Pieces result;
  for (size_t left = count_of(*sources[0]); left > 0;) {
    size_t count = left;
    size_t element = 0;
    for (size_t i = 0; i < sources.size(); ++i) {
      const Piece& piece = (*sources[i])[cursors[i].index];
      count = std::min(count, piece.count - cursors[i].done);
      numbers[i] = piece.value;
      if (i == 0) element = piece.element + cursors[i].done;
      if (element != piece.element + cursors[i].done) {
        complain(Fault::kMixedElements, "combines element " + std::to_string(element) + " with element " +
                                            std::to_string(piece.element + cursors[i].done));
      }
    }
    for (size_t i = 0; i < sources.size(); ++i) {
      cursors[i].done += count;
      if (cursors[i].done == (*sources[i])[cursors[i].index].count) cursors[i] = {cursors[i].index + 1, 0};
    }
    order_pair(numbers, values);
    Value value = sources.size() == 1 ? values[numbers[0]] : reduce(numbers, values, complain);
    if (rules.finish) finish(value, rules, complain);
    result.push_back({count, element, values.number_of(value)});
    left -= count;
  }
  return result;
}

}  // namespace nitinol::verify
