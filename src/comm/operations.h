// The operations of the API: arguments are checked and recorded in the thread's group.
#pragma once

#include "comm/group.h"
#include "nccl.h"

namespace nitinol {

/// The arguments of a collective call as they come from the API. Fields that a call lacks stay as they are.
struct CollectiveCall {
  const char* function = "";
  Collective what = Collective::kAllReduce;
  const void* send = nullptr;
  void* receive = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
};

/// Throws Error(ncclInvalidArgument) and records nothing if an argument is bad; otherwise records the task.
void record_collective(const CollectiveCall& call);

struct MessageCall {
  const char* function = "";
  MessageWork::Direction direction = MessageWork::Direction::kSend;
  void* buffer = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
  int peer = 0;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
};
void record_message(const MessageCall& call);

/// Throws Error(ncclInvalidArgument) unless it is one of the API's types.
DataType checked_type(ncclDataType_t type, const char* function);

}  // namespace nitinol
