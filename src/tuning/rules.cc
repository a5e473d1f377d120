#include "tuning/rules.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/split.h"
#include "base/words.h"

namespace nitinol {
namespace {

struct Word {
  std::string_view name;
  uint32_t bits;
};

constexpr uint32_t bit(Algorithm algorithm) { return 1U << static_cast<int>(algorithm); }
constexpr uint32_t bit(Protocol protocol) { return 1U << static_cast<int>(protocol); }

constexpr Word kAlgorithmWords[] = {
    {"oneshot", bit(Algorithm::kOneShot)},
    {"twoshot", bit(Algorithm::kTwoShot)},
    {"ring", bit(Algorithm::kRing)},
    {"tree", bit(Algorithm::kTree)},
    {"collnetdirect", 0},
    {"collnetchain", 0},
    {"nvls", 0},
    {"nvlstree", 0},
    {"pat", 0},
};

constexpr Word kProtocolWords[] = {
    {"ll", bit(Protocol::kLL)}, {"ll128", bit(Protocol::kLL128)}, {"simple", bit(Protocol::kSimple)}};

struct Function {
  std::string_view name;
  Collective what;
};
constexpr Function kFunctions[] = {
    {"broadcast", Collective::kBroadcast}, {"reduce", Collective::kReduce},
    {"allgather", Collective::kAllGather}, {"reducescatter", Collective::kReduceScatter},
    {"allreduce", Collective::kAllReduce},
};

/// For whoever has written another one.
std::string names_in(const auto& rows) {
  std::string names;
  for (const auto& row : rows) names += formatted("{}{}", names.empty() ? "" : ", ", row.name);
  return names;
}

/// The names of one section, `^` included, as bits.
uint32_t parse_names(const char* variable, std::string_view names, const auto& words) {
  const bool inverted = names.starts_with('^');
  if (inverted) names.remove_prefix(1);
  uint32_t bits = 0;
  for (const std::string_view name : split(names, ',')) {
    const auto* word = std::find_if(std::begin(words), std::end(words),
                                    [&](const Word& w) { return same_ignoring_case(w.name, name); });
    if (word == std::end(words)) {
      fail(ncclInvalidUsage, "{}: unknown word '{}'; there are {}", variable, std::string(name), names_in(words));
    }
    bits |= word->bits;
  }
  return inverted ? ~bits : bits;
}

Collective parse_function(const char* variable, std::string_view name) {
  const auto* function = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                      [&](const Function& f) { return same_ignoring_case(f.name, name); });
  if (function == std::end(kFunctions)) {
    fail(ncclInvalidUsage, "{}: unknown function '{}'; there are {}", variable, std::string(name),
         names_in(kFunctions));
  }
  return function->what;
}

/// Calls set(collective, bits) for every function that the text speaks of.
void parse_sections(const char* variable, std::string_view text, const auto& words, const auto& set) {
  bool first = true;
  std::vector<std::pair<Collective, uint32_t>> named;
  for (const std::string_view section : split(text, ';')) {
    const size_t colon = section.find(':');
    if (colon == std::string_view::npos) {
      if (!first) fail(ncclInvalidUsage, "{}: only the first section may go without a function", variable);
      const uint32_t bits = parse_names(variable, section, words);
      for (const Function& function : kFunctions) set(function.what, bits);
    } else {
      named.emplace_back(parse_function(variable, section.substr(0, colon)),
                         parse_names(variable, section.substr(colon + 1), words));
    }
    first = false;
  }
  for (const auto& [what, bits] : named) set(what, bits);
}

}  // namespace

Rules Rules::any() {
  Rules rules;
  rules.algorithms.fill(kAny);
  rules.protocols.fill(kAny);
  return rules;
}

void restrict_algorithms(std::string_view text, Rules& rules) {
  Rules changed = rules;
  parse_sections("NCCL_ALGO", text, kAlgorithmWords, [&](Collective what, uint32_t bits) {
    changed.algorithms[static_cast<size_t>(what)] = bits;
    changed.algorithms_named[static_cast<size_t>(what)] = true;
  });
  rules = changed;
}

void restrict_protocols(std::string_view text, Rules& rules) {
  Rules changed = rules;
  parse_sections("NCCL_PROTO", text, kProtocolWords,
                 [&](Collective what, uint32_t bits) { changed.protocols[static_cast<size_t>(what)] = bits; });
  rules = changed;
}

}  // namespace nitinol
