// Names for helper threads, as shown by top and debuggers.
#pragma once

#include <string_view>

namespace nitinol {

/// Names the calling thread if NCCL_SET_THREAD_NAME asks for it. The kernel keeps the first 15 characters.
void set_thread_name(std::string_view name);

}  // namespace nitinol
