// The machine that the simulator (executor/simulate) imagines, and as which executors describe theirs to it: hosts of
// equal size, each with some network ports; within a host every pair of ranks is connected through the ranks' own
// ports.
//
//   rank --port-- host's switch --port-- rank          (link local)
//   rank --> network port k of its host --> network port k' of the other host --> rank   (link network)
//
// A port carries one message at a time in each direction.
#pragma once

#include <cstddef>

namespace nitinol {

/// Infinitely fast where a rate is 0.
struct LinkModel {
  double latency_us = 0;
  double bytes_per_us = 0;  ///< of each port (1000 bytes/us = 1 GB/s)
};

struct TopologyModel {
  int ranks_per_host = 1 << 30;
  int network_ports_per_host = 1;  ///< the ranks of a host share them in turn: local rank modulo ports
  LinkModel local;
  LinkModel network;
  double memory_bytes_per_us = 0;  ///< at which a rank reads its sources and writes its own buffer
  double copy_bytes_per_us = 0;    ///< at which it copies its own data where that is all there is to do
  double step_us = 0;              ///< what a transfer costs a rank whatever its size
  double start_us = 0;             ///< before a rank's first transfer
  size_t element_bytes = 1;
  int slots = 2;  ///< of each connection
};

}  // namespace nitinol
