// Stands in for the library's probe of peers' memory.
#pragma once

/// From now on the rank finds nothing of what it writes into the memory of others; -1: all do.
void break_probe_of(int rank);
