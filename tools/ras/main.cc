// nitinol-ras: asks a running job about its health.
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "client.h"
#include "options.h"

namespace nitinol::ras_tool {
namespace {

using Json = nlohmann::json;

constexpr int kNoAnswer = 1;
constexpr int kNotWell = 3;
constexpr std::size_t kLettersOfName = 8;

void print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) throw std::runtime_error(std::string("cannot write the answer: ") + std::strerror(errno));
}

Json parsed(const std::string& answer) {
  try {
    return Json::parse(answer);
  } catch (const Json::exception& error) {
    throw NoAnswer(std::string("the answer is cut off or no JSON: ") + error.what());
  }
}

std::string ranks_text(const Json& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (const Json& rank : ranks) text += (&rank == &ranks.front() ? " " : ", ") + rank.dump();
  return text;
}

/// What is wrong with a communicator; nothing if it is well.
std::string trouble_of(const Json& communicator) {
  if (communicator.at("healthy").get<bool>()) return "";
  std::string text =
      "communicator " + communicator.at("communicator").get<std::string>().substr(0, kLettersOfName) + ":";
  for (const Json& rank : communicator.at("missing")) {
    const Json& told = communicator.at("ranks").at(rank.get<std::size_t>());
    text += "\n  missing rank " + rank.dump() + ": " + told.at("missing").get<std::string>();
  }
  for (const Json& error : communicator.at("errors")) {
    text += "\n  error on " + ranks_text(error.at("ranks")) + ": " + error.at("sentence").get<std::string>();
  }
  if (communicator.at("calls_differ").get<bool>()) text += "\n  the ranks' calls do not match";
  return text + "\n";
}

int check(const Options& options) {
  const Json job = parsed(ask(options, "STATUS", true));
  std::string troubles;
  for (const Json& communicator : job.at("communicators")) troubles += trouble_of(communicator);
  print(troubles.empty() ? "All is well.\n" : troubles);
  return troubles.empty() ? 0 : kNotWell;
}

bool is_text_of_id(const std::string& text) { return text.find_first_not_of("0123456789abcdef") == std::string::npos; }

/// "3f7925a2" of "3f7925a2-12.json"; "" if it is no name of a dump.
std::string communicator_in(const std::filesystem::path& path) {
  const std::string name = path.stem().string();
  if (path.extension() != ".json" || name.size() <= kLettersOfName + 1 || name[kLettersOfName] != '-') return "";
  const std::string rank = name.substr(kLettersOfName + 1);
  const std::string communicator = name.substr(0, kLettersOfName);
  const bool is_rank = rank.find_first_not_of("0123456789") == std::string::npos;
  return is_rank && is_text_of_id(communicator) ? communicator : "";
}

/// Of ranks that are silent now they would pass for dumps of today; they may be all that is left of these.
void set_earlier_dumps_aside(const std::string& folder, const std::set<std::string>& communicators,
                             const std::set<std::string>& names_now) {
  std::error_code error;
  std::vector<std::filesystem::path> earlier;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const bool is_ours = communicators.count(communicator_in(entry->path())) != 0;
    const bool is_new = names_now.count(entry->path().filename().string()) != 0;
    if (is_ours && !is_new && entry->is_regular_file(error)) earlier.push_back(entry->path());
  }
  for (const auto& path : earlier) {
    std::filesystem::rename(path, path.string() + ".earlier", error);
    std::fprintf(stderr, "nitinol-ras: %s is of another time%s\n", path.c_str(),
                 error ? "" : ", and is renamed: .earlier is behind its name now");
  }
}

/// The file's name; "" if the answer has none that could be one.
std::string write_dump(const std::string& folder, const Json& dump) {
  const auto communicator = dump.at("communicator").get<std::string>();
  if (!is_text_of_id(communicator)) return "";
  const std::string name =
      communicator.substr(0, kLettersOfName) + "-" + std::to_string(dump.at("rank").get<int>()) + ".json";
  const std::string path = folder + "/" + name;
  std::ofstream file(path, std::ios::trunc);
  file << dump.at("text").get<std::string>();
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
  print(path + "\n");
  return name;
}

/// Writes what the job sent, with the rights of whoever asks.
int collect_dumps(const Options& options) {
  const Json answer = parsed(ask(options, "DUMP", true));
  if (::mkdir(options.dump_folder.c_str(), 0777) != 0 && errno != EEXIST) {
    throw std::runtime_error("cannot make the folder " + options.dump_folder + ": " + std::strerror(errno));
  }
  const Json left_out = answer.value("left_out", Json::array());
  std::set<std::string> communicators;
  for (const Json* const all : {&answer.at("dumps"), &left_out}) {
    for (const Json& dump : *all) {
      communicators.insert(dump.at("communicator").get<std::string>().substr(0, kLettersOfName));
    }
  }
  std::set<std::string> written;
  for (const Json& dump : answer.at("dumps")) written.insert(write_dump(options.dump_folder, dump));
  set_earlier_dumps_aside(options.dump_folder, communicators, written);
  for (const Json& process : answer.at("silent")) {
    std::fprintf(stderr, "nitinol-ras: nothing from host %s, pid %d: %s\n",
                 process.at("host").get<std::string>().c_str(), process.at("pid").get<int>(),
                 process.at("reason").get<std::string>().c_str());
  }
  for (const Json& dump : left_out) {
    std::fprintf(stderr, "nitinol-ras: no dump of rank %d of communicator %s: the dumps of this job are too long\n",
                 dump.at("rank").get<int>(),
                 dump.at("communicator").get<std::string>().substr(0, kLettersOfName).c_str());
  }
  return left_out.empty() ? 0 : kNoAnswer;
}

int tell(const Options& options) {
  const std::string answer = ask(options, options.verbose ? "VERBOSE STATUS" : "STATUS", options.json);
  if (options.json) static_cast<void>(parsed(answer));  // is it whole?
  print(answer);
  return 0;
}

int run(const Options& options) {
  if (!options.dump_folder.empty()) return collect_dumps(options);
  return options.check ? check(options) : tell(options);
}

int main_body(int argc, char** argv) {
  const ParseResult parsed_options = parse_options(argc, argv);
  if (parsed_options.exit_code) return *parsed_options.exit_code;
  try {
    return run(parsed_options.options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nitinol-ras: %s\n", error.what());
    return kNoAnswer;
  }
}

}  // namespace
}  // namespace nitinol::ras_tool

int main(int argc, char** argv) { return nitinol::ras_tool::main_body(argc, argv); }
