#include "diagnostics/ras/command.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

namespace nitinol::ras {
namespace {

constexpr std::size_t kMostWords = 8;
constexpr double kLongestTimeout = 86'400;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < line.size() && words.size() <= kMostWords;) {
    if (is_space(line[i])) {
      ++i;
      continue;
    }
    std::string word;
    for (; i < line.size() && !is_space(line[i]); ++i) {
      word += line[i] >= 'A' && line[i] <= 'Z' ? static_cast<char>(line[i] - 'A' + 'a') : line[i];
    }
    words.push_back(std::move(word));
  }
  return words;
}

std::optional<double> seconds_in(const std::string& word) {
  double seconds = 0;
  const auto parsed = std::from_chars(word.data(), word.data() + word.size(), seconds);
  if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size()) return std::nullopt;
  if (!std::isfinite(seconds) || seconds < 0 || seconds > kLongestTimeout) return std::nullopt;
  return seconds;
}

Command mistake(std::string text) {
  Command command;
  command.mistake = std::move(text);
  return command;
}

Command with_kind(Command::Kind kind) {
  Command command;
  command.kind = kind;
  return command;
}

}  // namespace

Command parse_command(std::string_view line) {
  using Kind = Command::Kind;
  const std::vector<std::string> words = words_of(line);
  const auto are = [&](std::initializer_list<const char*> wanted) {
    std::size_t i = 0;
    for (const char* const word : wanted) {
      if (i == words.size() || words[i++] != word) return false;
    }
    return true;
  };
  const auto count = words.size();
  if (count == 0) return with_kind(Kind::kNothing);
  if (count == 3 && are({"client", "protocol"})) return with_kind(Kind::kProtocol);
  if (count == 1 && are({"status"})) return with_kind(Kind::kStatus);
  if (count == 2 && are({"verbose", "status"})) return with_kind(Kind::kVerboseStatus);
  if (count == 1 && are({"dump"})) return with_kind(Kind::kDump);
  if (are({"timeout"})) {
    const auto seconds = count == 2 ? seconds_in(words[1]) : std::nullopt;
    if (!seconds) return mistake("TIMEOUT takes a number of seconds from 0 (as long as possible) to 86400");
    Command command = with_kind(Kind::kTimeout);
    command.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(*seconds * 1000)));
    return command;
  }
  if (are({"set", "format"})) {
    if (count != 3 || (words[2] != "text" && words[2] != "json")) return mistake("SET FORMAT takes text or json");
    Command command = with_kind(Kind::kFormat);
    command.json = words[2] == "json";
    return command;
  }
  return mistake("unknown command; there are STATUS, VERBOSE STATUS, DUMP, TIMEOUT seconds, SET FORMAT text|json");
}

}  // namespace nitinol::ras
