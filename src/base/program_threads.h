// Which threads of the process are the program's.
#pragma once

#include <vector>

namespace nitinol {

/// The ids of all threads but those of the library, of virtual GPUs and of CUDA, which run nothing of the program but
/// functions that it has put into streams, and those may call nothing; in ascending order. Empty if they cannot be
/// found out. Threads may come and go meanwhile: only what is found twice in a row is certain. Takes some system calls.
std::vector<int> threads_of_program();

}  // namespace nitinol
