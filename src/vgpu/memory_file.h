// The files without a name that GPUs' memory lies in.
#pragma once

#include <cstddef>

namespace nitinol::vgpu {

// -1: there is none to be had. Never under the number of a standard stream, which the system gives to what is opened
// next in a program that has closed those: what the program or a library prints would go into the memory.
int make_memory_file(const char* name);
// The same, of one that is open.
int beyond_standard_streams(int fd);
// False also where the limit for the size of files (ulimit -f) is lower; by itself that ends the process.
bool set_size(int fd, size_t size);

}  // namespace nitinol::vgpu
