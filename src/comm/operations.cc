#include "comm/operations.h"

#include <cstdint>

#include "base/log.h"
#include "base/settings.h"
#include "comm/handle.h"
#include "device/memory_range.h"

namespace nitinol {
namespace {

/// Throws unless `count` elements for each of `blocks` ranks can exist in memory.
size_t checked_bytes(const char* function, size_t count, DataType type, int blocks) {
  const size_t limit = static_cast<size_t>(PTRDIFF_MAX) / bytes_of(type) / static_cast<size_t>(blocks);
  if (count > limit) {
    fail(ncclInvalidArgument, "{} : count {} is negative or too large: {} blocks of it do not fit into memory",
         function, count, blocks);
  }
  return count * bytes_of(type);
}

void check_rank(const char* function, const char* what, int rank, int ranks) {
  if (rank < 0 || rank >= ranks) {
    fail(ncclInvalidArgument, "{} : invalid {} {} (the communicator has ranks 0 to {})", function, what, rank,
         ranks - 1);
  }
}

void check_buffer(const char* function, const char* name, const void* buffer, size_t bytes,
                  const Communicator& communicator) {
  if (buffer == nullptr) fail(ncclInvalidArgument, "{} : {} argument is NULL", function, name);
  static const bool check_pointers = settings().flag(Setting::kCheckPointers) ||
                                     settings().text_if_set(Setting::kCheckMode).value_or("").starts_with("DEBUG_");
  if (!check_pointers) return;
  cudaPointerAttributes attributes{};
  const cudaError_t status = cudaPointerGetAttributes(&attributes, buffer);
  if (status != cudaSuccess || attributes.type == cudaMemoryTypeUnregistered) {
    static_cast<void>(cudaGetLastError());
    fail(ncclInvalidArgument, "{} : {} is not a pointer that CUDA knows", function, name);
  }
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != communicator.device()) {
    fail(ncclInvalidArgument, "{} : {} lies on device {}, the communicator uses device {}", function, name,
         attributes.device, communicator.device());
  }
  if (attributes.type == cudaMemoryTypeHost) return;  // it may be registered piece by piece
  if (const auto there = bytes_to_end_of_memory(buffer); there && *there < bytes) {
    fail(ncclInvalidArgument, "{} : {} is to hold {} bytes, its memory ends after {}", function, name, bytes, *there);
  }
}

/// How many blocks of `count` elements the rank's send and receive buffers hold; 0: the buffer is not used.
struct Blocks {
  int send = 1;
  int receive = 1;
};
Blocks blocks_of(Collective what, bool is_root, int ranks) {
  switch (what) {
    case Collective::kAllReduce: return {1, 1};
    case Collective::kBroadcast: return {is_root ? 1 : 0, 1};
    case Collective::kReduce: return {1, is_root ? 1 : 0};
    case Collective::kAllGather: return {1, ranks};
    case Collective::kReduceScatter: return {ranks, 1};
    case Collective::kAllToAll: return {ranks, ranks};
    case Collective::kGather: return {1, is_root ? ranks : 0};
    case Collective::kScatter: return {is_root ? ranks : 0, 1};
  }
  return {};
}

/// Whether a line is written for each operation, in the trace of calls or about COLL.
bool logs_operations() {
  return log_enabled(LogLevel::kInfo, Subsystem::kColl) || log_enabled(LogLevel::kTrace, Subsystem::kCall);
}

/// As printf writes it, which scripts expect.
std::string pointer_text(const void* pointer) { return pointer != nullptr ? formatted("{}", pointer) : "(nil)"; }

void write_down(const CollectiveCall& call, Communicator& communicator) {
  const std::string send = pointer_text(call.send);
  const std::string receive = pointer_text(call.receive);
  const std::string comm = pointer_text(call.communicator);
  const std::string stream = pointer_text(call.stream);
  const int type = static_cast<int>(call.type);
  const int op = static_cast<int>(call.op);
  log_call("nccl{}(sendbuff {}, recvbuff {}, count {}, datatype {}, op {}, root {}, comm {}, stream {})", call.function,
           send, receive, call.count, type, op, call.root, comm, stream);
  log_info(Subsystem::kColl,
           "{}: opCount {:x} sendbuff {} recvbuff {} count {} datatype {} op {} root {} comm {} [nranks={}] stream {}",
           call.function, communicator.next_logged_call(), send, receive, call.count, type, op, call.root, comm,
           communicator.ranks(), stream);
}

/// The line of a message has the same form: its buffer is the receive buffer, its peer the root.
void write_down(const MessageCall& call, Communicator& communicator) {
  const std::string buffer = pointer_text(call.buffer);
  const std::string comm = pointer_text(call.communicator);
  const std::string stream = pointer_text(call.stream);
  const int type = static_cast<int>(call.type);
  log_call("nccl{}(buffer {}, count {}, datatype {}, peer {}, comm {}, stream {})", call.function, buffer, call.count,
           type, call.peer, comm, stream);
  log_info(
      Subsystem::kColl,
      "{}: opCount {:x} sendbuff (nil) recvbuff {} count {} datatype {} op 0 root {} comm {} [nranks={}] stream {}",
      call.function, communicator.next_logged_call(), buffer, call.count, type, call.peer, comm, communicator.ranks(),
      stream);
}

/// Without the buffers that the rank does not use: they may be anything.
CollectiveWork work_of(const CollectiveCall& call, const Blocks& blocks, DataType type, size_t bytes,
                       const Reduction& reduction) {
  const bool sums = reduces(call.what);
  return {.what = call.what,
          .input = blocks.send > 0 ? call.send : nullptr,
          .output = blocks.receive > 0 ? call.receive : nullptr,
          .count = sums ? call.count : bytes,
          .type = sums ? type : DataType::kUint8,
          .stated = type,
          .reduction = reduction,
          .root = call.root,
          .plan = {}};
}

void record_collective(const CollectiveCall& call, Communicator& communicator) {
  const int ranks = communicator.ranks();
  if (rooted(call.what)) check_rank(call.function, "root", call.root, ranks);
  const DataType type = checked_type(call.type, call.function);
  const size_t bytes = checked_bytes(call.function, call.count, type, has_block_per_rank(call.what) ? ranks : 1);
  static constexpr Reduction kNone;
  const Reduction& reduction =
      reduces(call.what) ? communicator.operators().resolve(call.op, type, call.function) : kNone;
  if (logs_operations()) write_down(call, communicator);
  if (call.count == 0 && ranks == 1) return;
  const Blocks blocks = blocks_of(call.what, call.root == communicator.rank(), ranks);
  const auto check = [&](const char* name, const void* buffer, int held) {
    if (bytes > 0 && held > 0) {
      check_buffer(call.function, name, buffer, bytes * static_cast<size_t>(held), communicator);
    }
  };
  check("sendbuff", call.send, blocks.send);
  check("recvbuff", call.receive, blocks.receive);
  group::add_task({communicator, call.stream, work_of(call, blocks, type, bytes, reduction)});
}

void record_message(const MessageCall& call, Communicator& communicator) {
  check_rank(call.function, "peer", call.peer, communicator.ranks());
  const DataType type = checked_type(call.type, call.function);
  const size_t bytes = checked_bytes(call.function, call.count, type, 1);
  if (bytes > MessageWork::kMostBytes) {
    fail(ncclInvalidArgument, "{} : count {} is too large: a message has {} bytes at most", call.function, call.count,
         MessageWork::kMostBytes);
  }
  if (bytes > 0) check_buffer(call.function, "buffer", call.buffer, bytes, communicator);
  if (logs_operations()) write_down(call, communicator);
  const MessageWork work{
      .direction = call.direction, .peer = call.peer, .buffer = call.buffer, .bytes = bytes, .stated = type};
  group::add_task({communicator, call.stream, work});
}

}  // namespace

DataType checked_type(ncclDataType_t type, const char* function) {
  const int value = static_cast<int>(type);
  if (value < 0 || value >= kDataTypes) fail(ncclInvalidArgument, "{} : invalid type {}", function, value);
  return static_cast<DataType>(value);
}

void record_collective(const CollectiveCall& call) {
  Communicator& communicator = communicator_of(call.communicator, call.function);
  group::require_ready(communicator, call.function);
  group::record_for(communicator, [&] { record_collective(call, communicator); });
}

void record_message(const MessageCall& call) {
  Communicator& communicator = communicator_of(call.communicator, call.function);
  group::require_ready(communicator, call.function);
  group::record_for(communicator, [&] { record_message(call, communicator); });
}

}  // namespace nitinol
