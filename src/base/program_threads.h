// Which threads of the process are the program's.
#pragma once

#include <vector>

namespace nitinol {

/// The ids of all threads but those of the library and of virtual GPUs, which run nothing of the program and start no
/// thread that does; in ascending order. Empty if they cannot be found out. Threads may come and go meanwhile: only
/// what is found twice in a row is certain. Takes some system calls.
std::vector<int> threads_of_program();

}  // namespace nitinol
