#include "options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <system_error>

#include "configuration.h"

namespace nitinol::ras_tool {
namespace {

constexpr int kBadUsage = 2;
constexpr double kMostSeconds = 86400;
constexpr int kLastPort = 65535;

/// The system would take a number beyond the last as another port.
bool is_port(const std::string& text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port > 0 && port <= kLastPort;
}

}  // namespace

bool split_address(const std::string& text, Options& options) {
  std::string host;
  std::string port;
  if (!text.empty() && text.front() == '[') {
    const auto close = text.find("]:");
    if (close == std::string::npos) return false;
    host = text.substr(1, close - 1);
    port = text.substr(close + 2);
  } else {
    const auto colon = text.rfind(':');
    if (colon == std::string::npos || text.find(':') != colon) return false;
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (host.empty() || !is_port(port)) return false;
  options.host = host;
  options.port = port;
  return true;
}

ParseResult parse_options(int argc, char** argv) {
  ParseResult result;
  Options& options = result.options;
  CLI::App app(
      "Asks a running job about its health: its communicators, what every rank does, who is missing and what failed. "
      "Any "
      "process of the job on this host answers for all of them.",
      "nitinol-ras");
  app.footer(
      "Exit status: 0 the job has answered, 1 it has not, or the answer could not be written, 2 wrong usage, 3 it is "
      "not well (with --check).\n"
      "NCCL_RAS_ADDR, in the environment or in NCCL's configuration files, is where the job listens, as it is for the "
      "job itself; the options override it.");
  std::string address;
  std::string format = "text";
  std::string host;
  std::string port;
  app.add_option("-a,--address", address, "where the job listens: host:port or [ipv6]:port");
  app.add_option("--host", host, "its host; default localhost");
  app.add_option("-p,--port", port, "its port; default 28028")->check(CLI::Range(1, kLastPort));
  app.add_option(
         "-t,--timeout", options.timeout,
         "seconds that the job's processes may take to answer; at most, and with 0, until they count as dead (60)")
      ->check(CLI::Range(0.0, kMostSeconds))
      ->capture_default_str();
  CLI::Option* const form = app.add_option("-f,--format", format, "text or json");
  form->check(CLI::IsMember({"text", "json"}))->capture_default_str();
  CLI::Option* const verbose = app.add_flag("-v,--verbose", options.verbose, "a line for every rank");
  CLI::Option* const check =
      app.add_flag("-c,--check", options.check, "say whether all is well, and what is not; status 3 if not");
  check->excludes(form)->excludes(verbose);
  app.add_option("-d,--dump", options.dump_folder, "collect the flight recorders of all ranks in this folder, as JSON")
      ->excludes(form)
      ->excludes(verbose)
      ->excludes(check)
      ->check([](const std::string& folder) { return folder.empty() ? "no folder is named" : ""; });
  try {
    app.parse(argc, argv);
    const bool is_told = !address.empty() || (!host.empty() && !port.empty());
    if (!is_told) address = configured_address().value_or("");
    if (!address.empty() && !split_address(address, options)) {
      throw CLI::ValidationError((is_told ? "the address '" : "the address in NCCL_RAS_ADDR, '") + address +
                                 "', is neither host:port nor [ipv6]:port");
    }
    if (!host.empty()) options.host = host;
    if (!port.empty()) options.port = port;
    options.json = format == "json";
  } catch (const CLI::ParseError& error) {
    result.exit_code = app.exit(error) == 0 ? 0 : kBadUsage;
  }
  return result;
}

}  // namespace nitinol::ras_tool
