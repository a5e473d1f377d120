// Who uses which link of the modelled machine when.
#pragma once

#include <cstdint>
#include <vector>

#include "model/topology_model.h"

namespace nitinol::simulate {

/// Picoseconds: whole numbers, so that sums of equal times are equal.
using Time = int64_t;
Time time_of(double microseconds);
Time time_of(double bytes, double bytes_per_us);
double microseconds(Time time);

/// One direction of a port: the times at which it is taken.
class Lane {
 public:
  /// The earliest time from `ready` on from which it is free for `length`.
  Time earliest(Time ready, Time length) const;
  /// Takes [begin, end), which is free. Nobody will ask for times before `now` any more.
  void take(Time begin, Time end, Time now);

 private:
  struct Use {
    Time begin = 0;
    Time end = 0;
  };
  std::vector<Use> uses_;  ///< in order, with gaps between
};

class Ports {
 public:
  Ports(int ranks, const TopologyModel& model);

  Time latency(int from, int to) const;

  struct Message {
    int from = 0;
    int to = 0;
    Time ready = 0;  ///< may leave from then on
    double bytes = 0;
  };
  struct Passage {
    Time left = 0;     ///< the sender is done with it
    Time arrived = 0;  ///< the receiver sees it
  };
  /// Lets a message pass as soon as both ports are free; `now` never decreases from call to call, and ready >= now.
  Passage pass(const Message& message, Time now);

 private:
  struct Port {
    Lane out;
    Lane in;
  };
  int host_of(int rank) const { return rank / model_.ranks_per_host; }
  Port& port_of(int rank, bool local);

  const TopologyModel& model_;
  std::vector<Port> local_;    ///< one per rank
  std::vector<Port> network_;  ///< host by host
};

}  // namespace nitinol::simulate
