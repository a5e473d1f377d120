// Notes which calls run, where their data does not tell (Simple): one thread of a launch does, beside those that move
// data. It stores into the host's memory and waits for nothing but the counts, which come with the steps.
#pragma once

#include "executor/cuda/parameters.h"
#include "executor/cuda/ptx.h"

namespace nitinol::cuda {

class RunCounter {
 public:
  /// `begins`: whether this thread notes the calls that the counts are of, if they are wanted at all. Once earlier
  /// kernels are done.
  __device__ __forceinline__ RunCounter(const QueueView& queue, int peer, bool sends, bool begins)
      : notes_(begins ? queue.notes : nullptr) {
    if (notes_ == nullptr) return;
    if (peer != queue.rank) notes_ += RunLines::among_messages(peer, sends);
    place_ = queue.layout.run_count(queue.counters, peer, sends);
    count_ = *place_;
  }

  __device__ __forceinline__ bool notes() const { return notes_ != nullptr; }
  __device__ __forceinline__ void note(uint32_t mark) {
    count_ = count_.and_then(mark);
    const RunNote note = RunNote::of(count_, mark);
    const uint4 words = make_uint4(note.number, note.trace, note.mark, note.check);
    store_live(&notes_->note[RunNotes::place(note.number)], words);
    const uint32_t sparse = RunNotes::sparse_place(note.number);
    if (sparse != RunNotes::kNotes) store_live(&notes_->note[sparse], words);
  }
  __device__ __forceinline__ void close() const { *place_ = count_; }

 private:
  RunNotes* notes_;
  RunCount* place_ = nullptr;
  RunCount count_;
};

}  // namespace nitinol::cuda
