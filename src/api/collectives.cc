// The C API: collectives and messages.
#include "api/entry.h"
#include "comm/operations.h"
#include "nccl.h"

using namespace nitinol;

NITINOL_ENTRY(ncclResult_t, ncclAllReduce,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
               ncclComm_t comm, cudaStream_t stream)) {
  return grouped(comm, [&] {
    record_collective({.function = "AllReduce",
                       .what = Collective::kAllReduce,
                       .send = sendbuff,
                       .receive = recvbuff,
                       .count = count,
                       .type = datatype,
                       .op = op,
                       .communicator = comm,
                       .stream = stream});
  });
}

NITINOL_ENTRY(ncclResult_t, ncclReduce,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
               ncclComm_t comm, cudaStream_t stream)) {
  return grouped(comm, [&] {
    record_collective({.function = "Reduce",
                       .what = Collective::kReduce,
                       .send = sendbuff,
                       .receive = recvbuff,
                       .count = count,
                       .type = datatype,
                       .op = op,
                       .root = root,
                       .communicator = comm,
                       .stream = stream});
  });
}

namespace {

/// Of two entries, of which neither may call the other by its name: that may be another library's.
ncclResult_t broadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return grouped(comm, [&] {
    record_collective({.function = "Broadcast",
                       .what = Collective::kBroadcast,
                       .send = sendbuff,
                       .receive = recvbuff,
                       .count = count,
                       .type = datatype,
                       .root = root,
                       .communicator = comm,
                       .stream = stream});
  });
}

}  // namespace

NITINOL_ENTRY(ncclResult_t, ncclBroadcast,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
               cudaStream_t stream)) {
  return broadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

NITINOL_ENTRY(ncclResult_t, ncclBcast,
              (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)) {
  return broadcast(buff, buff, count, datatype, root, comm, stream);
}

NITINOL_ENTRY(ncclResult_t, ncclAllGather,
              (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
               cudaStream_t stream)) {
  return grouped(comm, [&] {
    record_collective({.function = "AllGather",
                       .what = Collective::kAllGather,
                       .send = sendbuff,
                       .receive = recvbuff,
                       .count = sendcount,
                       .type = datatype,
                       .communicator = comm,
                       .stream = stream});
  });
}

NITINOL_ENTRY(ncclResult_t, ncclReduceScatter,
              (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
               ncclComm_t comm, cudaStream_t stream)) {
  return grouped(comm, [&] {
    record_collective({.function = "ReduceScatter",
                       .what = Collective::kReduceScatter,
                       .send = sendbuff,
                       .receive = recvbuff,
                       .count = recvcount,
                       .type = datatype,
                       .op = op,
                       .communicator = comm,
                       .stream = stream});
  });
}

NITINOL_ENTRY(ncclResult_t, ncclAlltoAll,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
               cudaStream_t stream)) {
  return grouped(comm, [&] {
    record_collective({.function = "AlltoAll",
                       .what = Collective::kAllToAll,
                       .send = sendbuff,
                       .receive = recvbuff,
                       .count = count,
                       .type = datatype,
                       .communicator = comm,
                       .stream = stream});
  });
}

NITINOL_ENTRY(ncclResult_t, ncclGather,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
               cudaStream_t stream)) {
  return grouped(comm, [&] {
    record_collective({.function = "Gather",
                       .what = Collective::kGather,
                       .send = sendbuff,
                       .receive = recvbuff,
                       .count = count,
                       .type = datatype,
                       .root = root,
                       .communicator = comm,
                       .stream = stream});
  });
}

NITINOL_ENTRY(ncclResult_t, ncclScatter,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
               cudaStream_t stream)) {
  return grouped(comm, [&] {
    record_collective({.function = "Scatter",
                       .what = Collective::kScatter,
                       .send = sendbuff,
                       .receive = recvbuff,
                       .count = count,
                       .type = datatype,
                       .root = root,
                       .communicator = comm,
                       .stream = stream});
  });
}

NITINOL_ENTRY(ncclResult_t, ncclSend,
              (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
               cudaStream_t stream)) {
  return grouped(comm, [&] {
    record_message({.function = "Send",
                    .direction = MessageWork::Direction::kSend,
                    .buffer = const_cast<void*>(sendbuff),
                    .count = count,
                    .type = datatype,
                    .peer = peer,
                    .communicator = comm,
                    .stream = stream});
  });
}

NITINOL_ENTRY(ncclResult_t, ncclRecv,
              (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream)) {
  return grouped(comm, [&] {
    record_message({.function = "Recv",
                    .direction = MessageWork::Direction::kReceive,
                    .buffer = recvbuff,
                    .count = count,
                    .type = datatype,
                    .peer = peer,
                    .communicator = comm,
                    .stream = stream});
  });
}
