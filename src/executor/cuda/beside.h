// A stream beside that of a launch, for kernels of it that must not wait for each other.
#pragma once

#include <array>

#include "device/event.h"
#include "device/stream.h"

namespace nitinol::cuda {

/// Of one rank's GPU, which is current when it is made; its primary context should be, as in a green one what runs
/// beside each other would have to share few multiprocessors.
class Beside {
 public:
  Beside()
      : streams_{Stream::create_urgent(), Stream::create_urgent()}, fork_(Event::create()), join_(Event::create()) {}

  /// Not while another capture has the stream for captures, which it keeps until it ends, also if it is invalid.
  bool is_free_for(cudaStream_t stream) const {
    const auto capture = capture_id(stream);
    if (capture == 0) return true;
    const CaptureState taken_by = capture_of(streams_[1].get());
    return taken_by.status == cudaStreamCaptureStatusNone ||
           (taken_by.status == cudaStreamCaptureStatusActive && taken_by.id == capture);
  }

  /// What is put into the stream that it returns comes after all that is in `stream` by now, and runs beside what is
  /// put there until join().
  cudaStream_t fork(cudaStream_t stream) {
    const cudaStream_t beside = streams_[capture_id(stream) != 0 ? 1 : 0].get();
    fork_.record(stream);
    fork_.make_wait(beside);
    return beside;
  }
  void join(cudaStream_t stream, cudaStream_t beside) {
    join_.record(beside);
    join_.make_wait(stream);
  }

 private:
  std::array<Stream, 2> streams_;  ///< the second for captures
  Event fork_;
  Event join_;
};

}  // namespace nitinol::cuda
