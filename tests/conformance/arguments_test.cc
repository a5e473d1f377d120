// Bad arguments get an error and a sentence, and change nothing.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <climits>
#include <cstdint>
#include <cstring>

#include "cluster.h"
#include "device_memory.h"
#include "nccl.h"

namespace nitinol::testing {
namespace {

/// Throws unless the call returns `code` and the last error holds `words`.
void refuses(ncclResult_t result, ncclResult_t code, const char* words) {
  if (result != code) {
    throw std::runtime_error("returned " + std::to_string(result) + ", not " + std::to_string(code) + " (" + words +
                             ")");
  }
  if (std::strstr(ncclGetLastError(nullptr), words) == nullptr) {
    throw std::runtime_error(std::string("'") + ncclGetLastError(nullptr) + "' lacks '" + words + "'");
  }
}

/// Two ranks, each with a process of its own, because the last error is one for all threads; afterwards an operation
/// must still work.
void with_two_ranks(const std::function<void(Rank&, void* buffer)>& body) {
  EXPECT_EQ("", run_ranks({1, 1}, [&](Rank& self) {
              void* buffer = nullptr;
              EXPECT_CALL(cudaMalloc(&buffer, 4096));
              body(self, buffer);
              const int32_t one = 1;
              int32_t sum = 0;
              EXPECT_CALL(copy_to_device(buffer, &one, sizeof(one)));
              EXPECT_CALL(ncclAllReduce(buffer, buffer, 1, ncclInt32, ncclSum, self.comm, self.stream));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(cudaMemcpy(&sum, buffer, sizeof(sum), cudaMemcpyDeviceToHost));
              if (sum != 2) throw std::runtime_error("the communicator is not usable any more");
              EXPECT_CALL(cudaFree(buffer));
            }));
}

TEST(Arguments, NullAndForeignCommunicatorsAreRefusedByEveryCall) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              uint64_t garbage[32] = {1, 2, 3};
              int number = 0;
              ncclResult_t state = ncclSuccess;
              auto* foreign = reinterpret_cast<ncclComm_t>(garbage);
              for (ncclComm_t bad : {ncclComm_t{nullptr}, foreign}) {
                const char* words = bad == nullptr ? "NULL" : "corrupted";
                refuses(ncclAllReduce(&number, &number, 1, ncclInt, ncclSum, bad, nullptr), ncclInvalidArgument, words);
                refuses(ncclBcast(&number, 1, ncclInt, 0, bad, nullptr), ncclInvalidArgument, words);
                refuses(ncclSend(&number, 1, ncclInt, 0, bad, nullptr), ncclInvalidArgument, words);
                refuses(ncclCommCount(bad, &number), ncclInvalidArgument, words);
                refuses(ncclCommUserRank(bad, &number), ncclInvalidArgument, words);
                refuses(ncclCommCuDevice(bad, &number), ncclInvalidArgument, words);
                refuses(ncclCommGetAsyncError(bad, &state), ncclInvalidArgument, words);
                refuses(ncclCommSplit(bad, 0, 0, &bad, nullptr), ncclInvalidArgument, words);
              }
              refuses(ncclAllReduce(&number, &number, 1, ncclInt, ncclSum, nullptr, nullptr), ncclInvalidArgument,
                      "AllReduce : comm argument is NULL");
              refuses(ncclBcast(&number, 1, ncclInt, 0, nullptr, nullptr), ncclInvalidArgument, "Broadcast");
            }));
}

TEST(Arguments, AnErrorMayBeAskedForWithAVariableThatHoldsNoCommunicatorYet) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              auto* const rubbish = reinterpret_cast<ncclComm_t>(8);
              refuses(ncclGetVersion(nullptr), ncclInvalidArgument, "version");
              if (std::strcmp(ncclGetLastError(rubbish), ncclGetLastError(nullptr)) != 0) {
                throw std::runtime_error("another sentence than without it");
              }
              // The other argument is looked at first.
              refuses(ncclCommRegister(rubbish, nullptr, 8, nullptr), ncclInvalidArgument, "handle");
            }));
}

TEST(Arguments, EndingNothingSucceeds) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              EXPECT_CALL(ncclCommFinalize(nullptr));
              EXPECT_CALL(ncclCommDestroy(nullptr));
              EXPECT_CALL(ncclCommAbort(nullptr));
              EXPECT_CALL(ncclCommRevoke(nullptr, 3));
              EXPECT_CALL(ncclCommWindowDeregister(nullptr, nullptr));
            }));
}

TEST(Arguments, NullOutputsAreRefused) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              refuses(ncclGetVersion(nullptr), ncclInvalidArgument, "version");
              refuses(ncclGetUniqueId(nullptr), ncclInvalidArgument, "uniqueId");
              refuses(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument, "NULL");
              refuses(ncclCommInitAll(nullptr, 1, nullptr), ncclInvalidArgument, "NULL");
              refuses(ncclMemAlloc(nullptr, 8), ncclInvalidArgument, "ptr");
            }));
}

TEST(Arguments, ImpossibleRanksAreRefusedBeforeAnythingIsDone) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              refuses(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument, "number of ranks");
              refuses(ncclCommInitRank(&comm, INT_MAX, id, 0), ncclInvalidArgument, "number of ranks");
              refuses(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument, "invalid rank");
              refuses(ncclCommInitRank(&comm, 2, id, -1), ncclInvalidArgument, "invalid rank");
              ncclUniqueId ids[2] = {id, id};
              refuses(ncclCommInitRankScalable(&comm, 1, 0, 2, ids, nullptr), ncclInvalidArgument, "ids");
              refuses(ncclCommInitRankScalable(&comm, 1, 0, 0, ids, nullptr), ncclInvalidArgument, "ids");
              refuses(ncclCommInitRankScalable(&comm, 2, 0, 2, ids, nullptr), ncclInvalidArgument, "ids 0 and 1");
              const int devices[] = {0, 4711};
              ncclComm_t comms[2];
              refuses(ncclCommInitAll(comms, 2, devices), ncclInvalidArgument, "invalid device 4711");
              refuses(ncclCommInitAll(comms, -1, nullptr), ncclInvalidArgument, "number of devices");
              EXPECT_CALL(ncclCommInitAll(comms, 0, nullptr));
              ncclUniqueId other;
              std::memset(&other, 7, sizeof(other));
              if (ncclCommInitRank(&comm, 1, other, 0) != ncclInvalidArgument)
                throw std::runtime_error("took a wrong id");
              EXPECT_CALL(ncclCommInitRank(&comm, 1, id, 0));
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(Arguments, BadRootPeerTypeOperatorAndCountAreRefused) {
  with_two_ranks([](Rank& self, void* b) {
    const ncclComm_t c = self.comm;
    const cudaStream_t s = self.stream;
    refuses(ncclBroadcast(b, b, 1, ncclInt, 2, c, s), ncclInvalidArgument, "invalid root 2");
    refuses(ncclReduce(b, b, 1, ncclInt, ncclSum, -1, c, s), ncclInvalidArgument, "invalid root -1");
    refuses(ncclSend(b, 1, ncclInt, 2, c, s), ncclInvalidArgument, "invalid peer 2");
    refuses(ncclRecv(b, 1, ncclInt, -1, c, s), ncclInvalidArgument, "invalid peer -1");
    refuses(ncclAllReduce(b, b, 1, ncclNumTypes, ncclSum, c, s), ncclInvalidArgument, "invalid type 12");
    refuses(ncclAllReduce(b, b, 1, static_cast<ncclDataType_t>(-1), ncclSum, c, s), ncclInvalidArgument,
            "invalid type");
    refuses(ncclAllReduce(b, b, 1, ncclInt, ncclNumOps, c, s), ncclInvalidArgument, "operator");
    refuses(ncclAllReduce(b, b, 1, ncclInt, static_cast<ncclRedOp_t>(-3), c, s), ncclInvalidArgument, "operator");
    refuses(ncclAllReduce(b, b, static_cast<size_t>(-1), ncclInt, ncclSum, c, s), ncclInvalidArgument, "count");
    refuses(ncclAllGather(b, b, SIZE_MAX / 8, ncclInt, c, s), ncclInvalidArgument, "count");
    refuses(ncclSend(b, size_t{1} << 38, ncclInt, 1 - self.rank, c, s), ncclInvalidArgument, "1099511627775 bytes");
    refuses(ncclRecv(b, size_t{1} << 38, ncclInt, 1 - self.rank, c, s), ncclInvalidArgument, "1099511627775 bytes");
    refuses(ncclAllReduce(nullptr, b, 1, ncclInt, ncclSum, c, s), ncclInvalidArgument, "sendbuff");
    refuses(ncclAllReduce(b, nullptr, 1, ncclInt, ncclSum, c, s), ncclInvalidArgument, "recvbuff");
  });
}

TEST(Arguments, OperatorsAreTiedToTheirTypeAndCommunicator) {
  with_two_ranks([](Rank& self, void* b) {
    float scalar = 2;
    ncclRedOp_t op = ncclSum;
    refuses(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, nullptr), ncclInvalidArgument,
            "NULL");
    EXPECT_CALL(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, self.comm));
    refuses(ncclAllReduce(b, b, 1, ncclDouble, op, self.comm, self.stream), ncclInvalidArgument,
            "AllReduce : the operator was made for data type 7, not 8");
    EXPECT_CALL(ncclRedOpDestroy(op, self.comm));
    refuses(ncclRedOpDestroy(op, self.comm), ncclInvalidArgument, "does not exist");
    refuses(ncclRedOpDestroy(ncclAvg, self.comm), ncclInvalidArgument,
            "ncclRedOpDestroy : operator is a NCCL builtin.");
    refuses(ncclRedOpDestroy(op, nullptr), ncclInvalidArgument, "invalid communicator passed.");
  });
}

TEST(Arguments, ABadCallInsideAGroupFailsTheGroupAndLeavesTheCommunicatorUsable) {
  with_two_ranks([](Rank& self, void* b) {
    EXPECT_CALL(ncclGroupStart());
    EXPECT_CALL(ncclAllReduce(b, b, 1, ncclInt, ncclSum, self.comm, self.stream));
    refuses(ncclBroadcast(b, b, 1, ncclInt, 9, self.comm, self.stream), ncclInvalidArgument, "root");
    refuses(ncclGroupEnd(), ncclInvalidArgument, "invalid root 9");

    EXPECT_CALL(ncclGroupStart());
    refuses(ncclAllReduce(b, nullptr, 1, ncclInt, ncclSum, self.comm, self.stream), ncclInvalidArgument, "recvbuff");
    refuses(ncclGroupSimulateEnd(nullptr), ncclInvalidArgument, "recvbuff");
    refuses(ncclGroupEnd(), ncclInvalidUsage, "not in a group");
  });
}

TEST(Arguments, ACommunicatorThatCouldNotBeMadeIsNull) {
  with_two_ranks([](Rank& self, void*) {
    auto* const rubbish = reinterpret_cast<ncclComm_t>(1);
    ncclComm_t made = rubbish;
    const auto is_null = [&] {
      if (made != nullptr) throw std::runtime_error("the handle was left as it was");
      made = rubbish;
    };
    ncclUniqueId id;
    std::memset(&id, 7, sizeof(id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.magic = 0;
    refuses(ncclCommInitRank(&made, 1, id, 0), ncclInvalidArgument, "unique id");
    is_null();
    refuses(ncclCommInitRankConfig(&made, 1, id, 0, &config), ncclInvalidArgument, "");
    is_null();
    refuses(ncclCommInitRankScalable(&made, 1, 0, 1, nullptr, nullptr), ncclInvalidArgument, "commIds");
    is_null();
    refuses(ncclCommInitRankScalable(&made, 1, 0, 0, &id, nullptr), ncclInvalidArgument, "number of ids");
    is_null();
    refuses(ncclCommSplit(self.comm, -5, 0, &made, nullptr), ncclInvalidArgument, "color");
    is_null();
    refuses(ncclCommSplit(self.comm, 0, 0, &made, &config), ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
    is_null();
    int excluded = 9;
    refuses(ncclCommShrink(self.comm, &excluded, 1, &made, nullptr, 0), ncclInvalidArgument, "exclusion list");
    is_null();
    refuses(ncclCommShrink(self.comm, &excluded, 0, &made, nullptr, 0), ncclInvalidArgument, "ranks to exclude");
    is_null();
    refuses(ncclCommShrink(self.comm, nullptr, 1, &made, nullptr, 0), ncclInvalidArgument, "excludeRanksList");
    is_null();
    refuses(ncclCommShrink(nullptr, &excluded, 1, &made, nullptr, 0), ncclInvalidArgument, "NULL");
    is_null();
  });
}

TEST(Arguments, ADestroyedCommunicatorIsRecognised) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              int count = 0;
              EXPECT_CALL(ncclCommInitRank(&comm, 1, id, 0));
              EXPECT_CALL(ncclCommDestroy(comm));
              refuses(ncclCommCount(comm, &count), ncclInvalidArgument, "destroyed");
              refuses(ncclAllReduce(&count, &count, 1, ncclInt, ncclSum, comm, nullptr), ncclInvalidArgument,
                      "destroyed");
              refuses(ncclCommDestroy(comm), ncclInvalidArgument, "destroyed");
            }));
}

TEST(Arguments, WhatAGroupAsksOfACommunicatorThatItEndsIsRefused) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              int* data = nullptr;
              ncclComm_t comm = nullptr;
              ncclComm_t child = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              for (ncclResult_t (*end)(ncclComm_t) : {ncclCommDestroy, ncclCommAbort}) {
                ncclUniqueId fresh{};
                EXPECT_CALL(ncclGetUniqueId(&fresh));
                EXPECT_CALL(ncclCommInitRank(&comm, 1, fresh, 0));
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(ncclAllReduce(data, data + 8, 8, ncclInt, ncclSum, comm, nullptr));
                EXPECT_CALL(end(comm));
                refuses(ncclGroupEnd(), ncclInvalidUsage, "destroyed or aborted");
                EXPECT_CALL(ncclGetUniqueId(&fresh));
                EXPECT_CALL(ncclCommInitRank(&comm, 1, fresh, 0));
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(ncclCommSplit(comm, 0, 0, &child, nullptr));
                EXPECT_CALL(end(comm));
                refuses(ncclGroupEnd(), ncclInvalidUsage, "destroyed or aborted");
              }
              EXPECT_CALL(cudaFree(data));
            }));
}

TEST(Arguments, WindowsAreHandedBackOnceAndTheirMemoryIsAsGoodAsAny) {
  with_two_ranks([](Rank& self, void*) {
    constexpr size_t kBytes = 8192;
    int* memory = nullptr;
    EXPECT_CALL(ncclMemAlloc(reinterpret_cast<void**>(&memory), kBytes));
    ncclWindow_t plain = nullptr;
    ncclWindow_t symmetric = nullptr;
    EXPECT_CALL(ncclCommWindowRegister(self.comm, memory, kBytes, &plain, NCCL_WIN_DEFAULT));
    EXPECT_CALL(ncclGroupStart());
    EXPECT_CALL(ncclCommWindowRegister(self.comm, memory, kBytes, &symmetric, NCCL_WIN_COLL_SYMMETRIC));
    EXPECT_CALL(ncclGroupEnd());
    expect_that(plain != nullptr && symmetric != nullptr && plain != symmetric, "two windows are not two");
    const int mine = 3 + self.rank;
    EXPECT_CALL(cudaMemcpyAsync(memory + 5, &mine, sizeof(mine), cudaMemcpyDefault, self.stream));
    EXPECT_CALL(ncclAllReduce(memory + 5, memory + 5, 1, ncclInt, ncclSum, self.comm, self.stream));
    int sum = 0;
    EXPECT_CALL(cudaMemcpyAsync(&sum, memory + 5, sizeof(sum), cudaMemcpyDefault, self.stream));
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
    expect_that(sum == 3 + 4, "the sum is " + std::to_string(sum));
    refuses(ncclCommDeregister(self.comm, plain), ncclInvalidUsage, "not a registration");
    EXPECT_CALL(ncclCommWindowDeregister(self.comm, plain));
    refuses(ncclCommWindowDeregister(self.comm, plain), ncclInvalidArgument, "not a window");
    const std::string latest = ncclGetLastError(self.comm);
    expect_that(latest.find("not a window") != std::string::npos, latest);
    EXPECT_CALL(ncclCommWindowDeregister(self.comm, symmetric));
    EXPECT_CALL(ncclMemFree(memory));
  });
}

TEST(Arguments, WindowsOfWhatCannotBeOneAreRefused) {
  with_two_ranks([](Rank& self, void* b) {
    ncclWindow_t window = nullptr;
    const auto registers = [&](void* buffer, size_t bytes, ncclWindow_t* into, int flags) {
      return ncclCommWindowRegister(self.comm, buffer, bytes, into, flags);
    };
    refuses(registers(nullptr, 4096, &window, NCCL_WIN_DEFAULT), ncclInvalidArgument, "NULL");
    refuses(registers(b, 0, &window, NCCL_WIN_DEFAULT), ncclInvalidArgument, "empty");
    refuses(registers(b, 4096, nullptr, NCCL_WIN_DEFAULT), ncclInvalidArgument, "win");
    refuses(registers(b, 4096, &window, 2), ncclInvalidArgument, "flags 2");
    void* const within = static_cast<char*>(b) + 256;
    EXPECT_CALL(ncclGroupStart());
    refuses(registers(within, 256, &window, NCCL_WIN_DEFAULT), ncclInvalidArgument, "multiple of 4096");
    EXPECT_CALL(ncclAllReduce(b, b, 1, ncclInt, ncclSum, self.comm, self.stream));
    EXPECT_CALL(ncclGroupEnd());  // a program that does without windows goes on
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
  });
}

/// Programs that are built for those find the names, and may call them all the same.
TEST(Arguments, FunctionsOfLaterVersionsOfNcclSaySo) {
  EXPECT_EQ(
      "", run_processes(1, [](int, const ncclUniqueId&) {
        for (const char* name : {"ncclCommSuspend", "ncclCommGrow", "ncclPutSignal", "ncclGetPeerDevicePointer"}) {
          const auto function = reinterpret_cast<ncclResult_t (*)()>(dlsym(RTLD_DEFAULT, name));
          expect_that(function != nullptr, std::string(name) + " is not there");
          refuses(function(), ncclInvalidUsage, name);
        }
        refuses(reinterpret_cast<ncclResult_t (*)()>(dlsym(RTLD_DEFAULT, "ncclSignal"))(), ncclInvalidUsage,
                "is of a later version of NCCL: this library has the interface of NCCL 2.28.9");
      }));
}

TEST(Arguments, RegistrationsAreHandedBackOnce) {
  with_two_ranks([](Rank& self, void* b) {
    void* first = nullptr;
    void* second = nullptr;
    EXPECT_CALL(ncclCommRegister(self.comm, b, 4096, &first));
    EXPECT_CALL(ncclCommRegister(self.comm, b, 4096, &second));
    EXPECT_CALL(ncclCommDeregister(self.comm, first));
    refuses(ncclCommDeregister(self.comm, first), ncclInvalidUsage, "not a registration");
    void* third = nullptr;
    EXPECT_CALL(ncclCommRegister(self.comm, b, 4096, &third));
    refuses(ncclCommDeregister(self.comm, first), ncclInvalidUsage, "not a registration");
    EXPECT_CALL(ncclCommDeregister(self.comm, third));
    EXPECT_CALL(ncclCommDeregister(self.comm, second));
    EXPECT_CALL(ncclCommDeregister(self.comm, nullptr));
    refuses(ncclCommRegister(self.comm, nullptr, 8, &first), ncclInvalidArgument, "NULL");
    refuses(ncclCommRegister(self.comm, b, 0, &first), ncclInvalidArgument, "empty");
  });
}

/// As windows need it.
TEST(Arguments, AllocatedMemoryBeginsWithAPage) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              for (const size_t bytes : {1UL, 100UL, 4095UL, 4096UL, 5000UL}) {
                void* memory[3] = {};
                for (void*& one : memory) {
                  EXPECT_CALL(ncclMemAlloc(&one, bytes));
                  expect_that(reinterpret_cast<uintptr_t>(one) % 4096 == 0, std::to_string(bytes) + " bytes");
                }
                for (void* const one : memory) EXPECT_CALL(ncclMemFree(one));
              }
            }));
}

TEST(Arguments, ErrorTextsAreThoseOfTheContract) {
  EXPECT_STREQ(ncclGetErrorString(ncclSuccess), "no error");
  EXPECT_STREQ(ncclGetErrorString(ncclRemoteError), "remote process exited or there was a network error");
  EXPECT_STREQ(ncclGetErrorString(static_cast<ncclResult_t>(4711)), "unknown result code");
  EXPECT_STREQ(ncclGetErrorString(static_cast<ncclResult_t>(-1)), "unknown result code");
}

}  // namespace
}  // namespace nitinol::testing
