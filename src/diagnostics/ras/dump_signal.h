// The signal on which a process dumps its flight recorders.
#pragma once

#include <string>
#include <string_view>

namespace nitinol::ras {

/// "SIGUSR1", "usr1" or "10"; 0 if it is none that a program can be sent for such a purpose.
int parse_signal(std::string_view text);

/// Handles the signal from now on, as long as the process lives, unless the program does; -1 and `trouble` then. The
/// descriptor, which is readable (8 bytes) once the signal has come, is the same at each call and stays open.
int watch_signal(int signal, std::string& trouble);

/// It is not there any more, as in the child of a fork: who watches next gets another one.
void forget_signal_descriptor();

}  // namespace nitinol::ras
