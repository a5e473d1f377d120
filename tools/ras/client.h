// The conversation with a job: commands in lines, one answer.
#pragma once

#include <stdexcept>
#include <string>

#include "options.h"

namespace nitinol::ras_tool {

/// No answer, and why.
struct NoAnswer : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Puts the question ("STATUS" ...) and returns the answer. Throws NoAnswer.
std::string ask(const Options& options, const std::string& question, bool json);

}  // namespace nitinol::ras_tool
