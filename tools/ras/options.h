// What the user asked for.
#pragma once

#include <optional>
#include <string>

namespace nitinol::ras_tool {

struct Options {
  std::string host = "localhost";
  std::string port = "28028";
  double timeout = 5;  ///< seconds for which the job's processes may take to answer; 0: until they count as dead
  bool verbose = false;
  bool json = false;
  bool check = false;
  std::string dump_folder;  ///< empty: no dumps
};

/// Reads the command line and, where that does not say it, where the job was told to listen; returns an exit code
/// instead when the program is to end at once.
struct ParseResult {
  Options options;
  std::optional<int> exit_code;
};
ParseResult parse_options(int argc, char** argv);

/// "host:port" or "[ipv6]:port"; false if it is neither.
bool split_address(const std::string& text, Options& options);

}  // namespace nitinol::ras_tool
