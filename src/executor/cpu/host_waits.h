// Whether a program waits on the host for one of its streams, so that it makes no call before that.
#pragma once

#include <optional>

#include "executor/stream_places.h"

namespace nitinol::cpu {

/// The only thread of the program waits for what runs in the stream, which is called by what runs there; nothing if it
/// does not, or there are others. Who may call next is then known for certain: nobody, until that has ended. Two looks
/// are needed, since threads may come and go during one. Takes some system calls.
std::optional<int> only_thread_if_it_waits_for(const StreamName& stream);

}  // namespace nitinol::cpu
