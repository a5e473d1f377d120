// Configuration files: lines NAME=VALUE that become environment variables unless these are set already.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nitinol {

/// The assignments in a file's text, in order. The value is everything from the first '=' to the end of the line; lines
/// that begin with '#', have no '=' or no name, or contain a zero byte are left out. Nothing is trimmed.
std::vector<std::pair<std::string, std::string>> parse_configuration(std::string_view text);

/// Sets the file's variables where they are not set, even to the empty string. A file that cannot be read changes
/// nothing. Returns a sentence for the log if something else than a file stands there, which is left alone; else "".
std::string apply_configuration_file(const std::string& path);

/// The user's file (NCCL_CONF_FILE, or .nccl.conf in the home directory of the user database), then /etc/nccl.conf.
/// Returns the sentences.
std::vector<std::string> apply_configuration_files();

}  // namespace nitinol
