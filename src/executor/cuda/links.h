// What is known of the links between GPUs.
#pragma once

#include <string_view>

namespace nitinol::cuda {

/// Whether GPUs of this kind are all linked with each other (NVLink) in the hosts they are made for, as far as its name
/// tells: those on cards are not, or only in groups.
bool are_usually_linked(int compute_capability, std::string_view name);

}  // namespace nitinol::cuda
