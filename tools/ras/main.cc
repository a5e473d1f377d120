// nitinol-ras: asks a running job about its health.
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "client.h"
#include "options.h"

namespace nitinol::ras_tool {
namespace {

using Json = nlohmann::json;

constexpr int kNoAnswer = 1;
constexpr int kNotWell = 3;
constexpr int kLettersOfName = 8;

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

/// Writes what the job sent, with the rights of whoever asks.
int collect_dumps(const Options& options) {
  const Json answer = parsed(ask(options, "DUMP", true));
  if (::mkdir(options.dump_folder.c_str(), 0777) != 0 && errno != EEXIST) {
    throw std::runtime_error("cannot make the folder " + options.dump_folder + ": " + std::strerror(errno));
  }
  for (const Json& dump : answer.at("dumps")) {
    const auto communicator = dump.at("communicator").get<std::string>();
    if (communicator.find_first_not_of("0123456789abcdef") != std::string::npos) continue;
    const std::string path = options.dump_folder + "/" + communicator.substr(0, kLettersOfName) + "-" +
                             std::to_string(dump.at("rank").get<int>()) + ".json";
    std::ofstream file(path, std::ios::trunc);
    file << dump.at("text").get<std::string>();
    file.close();
    if (!file) throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
    print(path + "\n");
  }
  for (const Json& process : answer.at("silent")) {
    std::fprintf(stderr, "nitinol-ras: nothing from host %s, pid %d: %s\n",
                 process.at("host").get<std::string>().c_str(), process.at("pid").get<int>(),
                 process.at("reason").get<std::string>().c_str());
  }
  return 0;
}

int run(const Options& options) {
  if (!options.dump_folder.empty()) return collect_dumps(options);
  if (options.check) return check(options);
  print(ask(options, options.verbose ? "VERBOSE STATUS" : "STATUS", options.json));
  return 0;
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
