// What a client of health monitoring may say, one command per line.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace nitinol::ras {

struct Command {
  enum class Kind {
    kNothing,   ///< an empty line
    kProtocol,  ///< CLIENT PROTOCOL n: the client tells its version
    kTimeout,   ///< TIMEOUT seconds: for the next question; 0: as long as it takes
    kFormat,    ///< SET FORMAT text|json
    kStatus,
    kVerboseStatus,
    kDump,     ///< the flight recorders of all ranks
    kMistake,  ///< anything else
  };
  Kind kind = Kind::kMistake;
  std::chrono::milliseconds timeout{0};
  bool json = false;
  std::string mistake;  ///< what is wrong, to be told to the client
};

/// Whatever the case of the letters and the spaces around the words; without the line's end.
Command parse_command(std::string_view line);

}  // namespace nitinol::ras
