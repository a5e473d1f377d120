// The engine that executes streams.
//
// Queueing work wakes no worker. A thread that waits for a stream executes it itself if nobody else does; that is the
// fast way, without a system call. Whatever is not waited for is given to worker threads: by the ticker, a thread that
// looks now and then for work that has been waiting since it looked last; by a kernel that is about to sleep; by a
// query. There is a worker for every stream that is given away, so a kernel that blocks holds up no other stream. While
// the system has no thread for one, the stream stays as it was: executed by whoever waits for it, or given away later.
#pragma once

#include "vgpu/stream.h"

namespace nitinol::vgpu {

// Returns when the point is reached (or the process is ending), having executed what leads to it if nobody else does.
void wait_for(Point point);

// Gives the stream to a worker, if it has work that nobody executes.
void give_to_worker(Stream& stream);

// Gives to workers what the calling thread has queued and nobody executes.
void give_away_own_work();

// Makes the ticker look at the stream; its mutex is held.
void watch(Stream& stream);

// Stops workers from beginning further operations, for the end of the process.
void stop_engine();
inline std::atomic<bool> g_engine_stopped{false};
inline bool engine_stopped() { return g_engine_stopped.load(std::memory_order_acquire); }

}  // namespace nitinol::vgpu
