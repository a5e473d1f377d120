// Memory of virtual GPUs: allocation, copies, fills, what pointers are, and the files behind them.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <set>

#include "vgpu/test_support.h"

namespace nitinol::vgpu::test {
namespace {

cudaPointerAttributes attributes_of(const void* pointer) {
  cudaPointerAttributes attributes;
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes, pointer));
  return attributes;
}

TEST(Memory, AllocationsAreAlignedAndApart) {
  std::vector<char*> pointers;
  std::set<std::pair<char*, char*>> ranges;
  for (size_t size : {size_t{1}, size_t{255}, size_t{256}, size_t{257}, size_t{4096}, size_t{5000}, size_t{1} << 21}) {
    for (int i = 0; i < 5; ++i) {
      char* pointer = nullptr;
      ASSERT_CUDA(cudaMalloc(&pointer, size));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % 256, 0u);
      std::memset(pointer, 1, size);
      pointers.push_back(pointer);
      ranges.insert({pointer, pointer + size});
    }
  }
  char* end = nullptr;
  for (const auto& [first, last] : ranges) {
    EXPECT_GE(first, end);
    end = last;
  }
  for (char* pointer : pointers) EXPECT_CUDA(cudaFree(pointer));
}

TEST(Memory, WhatIsFreedIsNotReadableAsBefore) {
  for (size_t size : {size_t{100}, size_t{8192}, size_t{1} << 20}) {
    char* pointer = nullptr;
    ASSERT_CUDA(cudaMalloc(&pointer, size));
    std::memset(pointer, 0x5a, size);
    ASSERT_CUDA(cudaFree(pointer));
    EXPECT_EQ(std::count(pointer, pointer + size, 0x5a), 0) << size;
    EXPECT_EQ(attributes_of(pointer).type, cudaMemoryTypeUnregistered);
  }
}

TEST(Memory, IsUsedAgain) {
  void* first = nullptr;
  ASSERT_CUDA(cudaMalloc(&first, 3 << 20));
  size_t before = 0;
  size_t total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&before, &total));
  for (int i = 0; i < 1000; ++i) {
    void* pointer = nullptr;
    ASSERT_CUDA(cudaMalloc(&pointer, size_t{1} << 30));
    ASSERT_CUDA(cudaFree(pointer));
  }
  size_t after = 0;
  ASSERT_CUDA(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  EXPECT_LT(after, total);
  ASSERT_CUDA(cudaFree(first));
}

TEST(Memory, ReportsErrors) {
  void* pointer = reinterpret_cast<void*>(1);
  EXPECT_CUDA_ERROR(cudaMalloc(&pointer, size_t{1} << 60), cudaErrorMemoryAllocation);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_CUDA_ERROR(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_CUDA_ERROR(cudaMalloc(static_cast<void**>(nullptr), 1), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaMalloc(&pointer, 0));
  EXPECT_EQ(pointer, nullptr);
  EXPECT_CUDA(cudaFree(nullptr));
  int local = 0;
  EXPECT_CUDA_ERROR(cudaFree(&local), cudaErrorInvalidValue);
  char* device = nullptr;
  ASSERT_CUDA(cudaMalloc(&device, 100));
  EXPECT_CUDA_ERROR(cudaFree(device + 1), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaFreeHost(device), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFree(device));
  EXPECT_CUDA_ERROR(cudaFree(device), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(Memory, ThatStreamsAreToFreeYetCanBeHadAgain) {
  size_t free = 0;
  size_t total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  const StreamOwner stream;
  for (int round = 0; round < 10; ++round) {
    void* pointer = nullptr;
    ASSERT_CUDA(cudaMallocAsync(&pointer, free / 2 + 1, stream));
    ASSERT_CUDA(cudaFreeAsync(pointer, stream));
  }
  void* pointer = nullptr;
  ASSERT_CUDA(cudaMallocAsync(&pointer, free / 2 + 1, stream));
  ASSERT_CUDA(cudaFreeAsync(pointer, stream));
  ASSERT_CUDA(cudaMalloc(&pointer, free / 2 + 1));
  ASSERT_CUDA(cudaFree(pointer));
}

TEST(Memory, OfTheHostCanBeHadWhenADeviceHasNoMore) {
  size_t free = 0;
  size_t total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  void* all = nullptr;
  ASSERT_CUDA(cudaMalloc(&all, free / 4096 * 4096));
  void* of_host = nullptr;
  ASSERT_CUDA(cudaMallocHost(&of_host, 4096));
  ASSERT_CUDA(cudaFreeHost(of_host));
  ASSERT_CUDA(cudaFree(all));
}

TEST(Memory, PointersHaveAttributes) {
  ASSERT_CUDA(cudaSetDevice(2));
  char* device = nullptr;
  char* host = nullptr;
  char* managed = nullptr;
  ASSERT_CUDA(cudaMalloc(&device, 1000));
  ASSERT_CUDA(cudaMallocHost(&host, 1000));
  ASSERT_CUDA(cudaMallocManaged(&managed, 1000));
  ASSERT_CUDA(cudaSetDevice(0));
  cudaPointerAttributes a = attributes_of(device + 999);
  EXPECT_EQ(a.type, cudaMemoryTypeDevice);
  EXPECT_EQ(a.device, 2);
  EXPECT_EQ(a.devicePointer, device + 999);
  EXPECT_EQ(a.hostPointer, nullptr);
  EXPECT_EQ(attributes_of(device + 1000).type, cudaMemoryTypeUnregistered);
  a = attributes_of(host);
  EXPECT_EQ(a.type, cudaMemoryTypeHost);
  EXPECT_EQ(a.devicePointer, host);
  EXPECT_EQ(a.hostPointer, host);
  a = attributes_of(managed);
  EXPECT_EQ(a.type, cudaMemoryTypeManaged);
  EXPECT_EQ(a.hostPointer, managed);
  int local = 0;
  a = attributes_of(&local);
  EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(a.hostPointer, &local);
  EXPECT_EQ(a.device, cudaInvalidDeviceId);
  EXPECT_CUDA(cudaFree(device));
  EXPECT_CUDA(cudaFreeHost(host));
  EXPECT_CUDA(cudaFree(managed));
}

TEST(Memory, HostMemoryCanBeRegistered) {
  std::vector<char> memory(10000);
  ASSERT_CUDA(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterMapped));
  EXPECT_EQ(attributes_of(memory.data() + 5000).type, cudaMemoryTypeHost);
  void* device = nullptr;
  EXPECT_CUDA(cudaHostGetDevicePointer(&device, memory.data(), 0));
  EXPECT_EQ(device, memory.data());
  unsigned flags = 0;
  EXPECT_CUDA(cudaHostGetFlags(&flags, memory.data()));
  EXPECT_EQ(flags, static_cast<unsigned>(cudaHostRegisterMapped));
  EXPECT_CUDA_ERROR(cudaHostRegister(memory.data() + 100, 10, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_CUDA_ERROR(cudaHostUnregister(memory.data() + 100), cudaErrorHostMemoryNotRegistered);
  EXPECT_CUDA_ERROR(cudaHostRegister(nullptr, 10, 0), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaHostUnregister(memory.data()));
  EXPECT_CUDA_ERROR(cudaHostUnregister(memory.data()), cudaErrorHostMemoryNotRegistered);
  EXPECT_CUDA_ERROR(cudaHostGetDevicePointer(&device, memory.data(), 0), cudaErrorInvalidValue);
  EXPECT_EQ(attributes_of(memory.data()).type, cudaMemoryTypeUnregistered);
  cudaGetLastError();
}

TEST(Copies, MoveDataInAllDirections) {
  std::vector<int> source(1000);
  std::iota(source.begin(), source.end(), 5);
  for (const bool guess : {false, true}) {
    auto kind = [&](cudaMemcpyKind exact) { return guess ? cudaMemcpyDefault : exact; };
    DeviceArray<int> first(1000);
    DeviceArray<int> second(1000);
    std::vector<int> middle(1000);
    std::vector<int> result(1000);
    ASSERT_CUDA(cudaMemcpy(middle.data(), source.data(), first.bytes(), kind(cudaMemcpyHostToHost)));
    ASSERT_CUDA(cudaMemcpy(first.get(), middle.data(), first.bytes(), kind(cudaMemcpyHostToDevice)));
    ASSERT_CUDA(cudaMemcpy(second.get(), first.get(), first.bytes(), kind(cudaMemcpyDeviceToDevice)));
    ASSERT_CUDA(cudaMemcpy(result.data(), second.get(), first.bytes(), kind(cudaMemcpyDeviceToHost)));
    EXPECT_EQ(result, source);
  }
}

TEST(Copies, BetweenDevices) {
  DeviceArray<int> first(10);
  ASSERT_CUDA(cudaSetDevice(1));
  DeviceArray<int> second(10);
  ASSERT_CUDA(cudaSetDevice(0));
  first.set(std::vector<int>(10, 3));
  ASSERT_CUDA(cudaMemcpyPeer(second.get(), 1, first.get(), 0, first.bytes()));
  EXPECT_EQ(second.values(), std::vector<int>(10, 3));
  first.set(std::vector<int>(10, 4));
  StreamOwner stream;
  ASSERT_CUDA(cudaMemcpyPeerAsync(second.get(), 1, first.get(), 0, first.bytes(), stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(second.values(), std::vector<int>(10, 4));
  EXPECT_CUDA_ERROR(cudaMemcpyPeer(second.get(), 99, first.get(), 0, 1), cudaErrorInvalidDevice);
  cudaGetLastError();
}

TEST(Copies, AndFillsComeBetweenWhatOtherDevicesDoBeforeAndAfterThem) {
  constexpr size_t kBytes = 1000;
  const std::vector<char> sevens(kBytes, 7);
  ASSERT_CUDA(cudaSetDevice(1));
  DeviceArray<char> there(kBytes);
  const StreamOwner stream(cudaStreamDefault);
  for (int round = 0; round < 100; ++round) {
    ASSERT_CUDA(cudaSetDevice(1));
    ASSERT_CUDA(cudaMemsetAsync(there.get(), 7, kBytes, stream));
    ASSERT_CUDA(cudaSetDevice(0));
    DeviceArray<char> here(kBytes);
    ASSERT_CUDA(cudaMemcpyPeer(here.get(), 0, there.get(), 1, kBytes));
    ASSERT_CUDA(cudaMemset(there.get(), 5, kBytes));
    ASSERT_CUDA(cudaSetDevice(1));
    ASSERT_CUDA(cudaMemsetAsync(there.get(), 7, kBytes, stream));
    ASSERT_CUDA(cudaSetDevice(0));
    ASSERT_EQ(here.values(), sevens);
    std::vector<char> read(kBytes);
    ASSERT_CUDA(cudaMemcpy(read.data(), there.get(), kBytes, cudaMemcpyDeviceToHost));
    ASSERT_EQ(read, sevens);
  }
}

TEST(Copies, OfRectangles) {
  std::vector<int> source(6 * 4);
  std::iota(source.begin(), source.end(), 0);
  size_t pitch = 0;
  char* device = nullptr;
  ASSERT_CUDA(cudaMallocPitch(reinterpret_cast<void**>(&device), &pitch, 3 * sizeof(int), 4));
  EXPECT_GE(pitch, 3 * sizeof(int));
  ASSERT_CUDA(
      cudaMemcpy2D(device, pitch, source.data() + 1, 6 * sizeof(int), 3 * sizeof(int), 4, cudaMemcpyHostToDevice));
  std::vector<int> result(3 * 4);
  StreamOwner stream;
  ASSERT_CUDA(cudaMemcpy2DAsync(result.data(), 3 * sizeof(int), device, pitch, 3 * sizeof(int), 4,
                                cudaMemcpyDeviceToHost, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_THAT(result, testing::ElementsAre(1, 2, 3, 7, 8, 9, 13, 14, 15, 19, 20, 21));
  EXPECT_CUDA_ERROR(cudaMemcpy2D(device, 1, source.data(), 8, 8, 1, cudaMemcpyHostToDevice),
                    cudaErrorInvalidPitchValue);
  ASSERT_CUDA(cudaMemset2D(device, pitch, 0, 2, 2));
  ASSERT_CUDA(cudaMemset2DAsync(device, pitch, 0, 2, 2, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  ASSERT_CUDA(cudaFree(device));
  cudaGetLastError();
}

TEST(Copies, FromPageableMemoryTakeTheValueOfTheMoment) {
  StreamOwner stream;
  DeviceArray<int> array(2);
  int value = 1;
  ASSERT_CUDA(cudaMemcpyAsync(array.get(), &value, sizeof value, cudaMemcpyHostToDevice, stream));
  value = 2;
  Gate gate;
  enqueue_gate(stream, gate);
  ASSERT_CUDA(cudaMemcpyAsync(array.get() + 1, &value, sizeof value, cudaMemcpyHostToDevice, stream));
  value = 3;
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_THAT(array.values(), testing::ElementsAre(1, 2));
}

TEST(Copies, ToPageableMemoryAreDoneWhenTheCallReturns) {
  StreamOwner stream;
  DeviceArray<int> array(1);
  int* pinned = nullptr;
  ASSERT_CUDA(cudaMallocHost(&pinned, sizeof *pinned));
  const int pageable = 3;
  for (const void* source :
       {static_cast<const void*>(array.get()), static_cast<const void*>(pinned), static_cast<const void*>(&pageable)}) {
    int before = 1;
    int value = 0;
    array.set({3});
    *pinned = 3;
    enqueue(stream, [&] { before = 2; });
    ASSERT_CUDA(cudaMemcpyAsync(&value, source, sizeof value, cudaMemcpyDefault, stream));
    EXPECT_EQ(value, 3);
    EXPECT_EQ(before, 2);
    ASSERT_CUDA(cudaStreamSynchronize(stream));
  }
  ASSERT_CUDA(cudaFreeHost(pinned));
}

TEST(Copies, ToPageableMemoryAreCapturedWithoutWaiting) {
  StreamOwner stream;
  DeviceArray<int> array(1);
  array.set({3});
  int value = 0;
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  ASSERT_CUDA(cudaMemcpyAsync(&value, array.get(), sizeof value, cudaMemcpyDeviceToHost, stream));
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  EXPECT_EQ(value, 0);
  ASSERT_CUDA(cudaGraphDestroy(graph));
}

TEST(Copies, FromPinnedMemoryTakeTheValueOfTheirTurn) {
  StreamOwner stream;
  DeviceArray<int> array(1);
  int* value = nullptr;
  ASSERT_CUDA(cudaHostAlloc(&value, sizeof *value, cudaHostAllocPortable));
  *value = 1;
  Gate gate;
  enqueue_gate(stream, gate);
  ASSERT_CUDA(cudaMemcpyAsync(array.get(), value, sizeof *value, cudaMemcpyHostToDevice, stream));
  *value = 2;
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_THAT(array.values(), testing::ElementsAre(2));
  ASSERT_CUDA(cudaFreeHost(value));
}

TEST(Copies, AreCheckedAgainstTheAllocation) {
  DeviceArray<char> array(100);
  std::vector<char> host(1000);
  StreamOwner stream;
  EXPECT_CUDA_ERROR(cudaMemcpy(host.data(), array.get(), 101, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaMemcpy(host.data(), array.get() + 1, 100, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaMemcpy(host.data(), host.data() + 500, 10, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaMemcpy(host.data(), array.get(), 10, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaMemcpy(nullptr, array.get(), 10, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaMemcpy(host.data(), array.get(), 10, static_cast<cudaMemcpyKind>(7)),
                    cudaErrorInvalidMemcpyDirection);
  EXPECT_CUDA_ERROR(cudaMemset(host.data(), 0, 10), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaMemsetAsync(array.get(), 0, 101, stream), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));
  EXPECT_CUDA(cudaMemset(array.get(), 0, 0));
  cudaGetLastError();
}

TEST(Fills, SetBytes) {
  DeviceArray<unsigned char> array(8);
  ASSERT_CUDA(cudaMemset(array.get(), 1, 8));
  ASSERT_CUDA(cudaMemset(array.get() + 2, 2, 4));
  StreamOwner stream;
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(cudaMemsetAsync(array.get() + 3, 3, 1, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_THAT(array.values(), testing::ElementsAre(1, 1, 2, 3, 2, 2, 1, 1));
}

TEST(Memory, CanBeAllocatedAndFreedInStreamOrder) {
  StreamOwner stream;
  Gate gate;
  enqueue_gate(stream, gate);
  int* pointer = nullptr;
  ASSERT_CUDA(cudaMallocAsync(&pointer, 100, stream));
  ASSERT_CUDA(cudaMemsetAsync(pointer, 0x11, 100, stream));
  int* value = nullptr;
  ASSERT_CUDA(cudaMallocHost(&value, sizeof *value));
  ASSERT_CUDA(cudaMemcpyAsync(value, pointer, sizeof *value, cudaMemcpyDeviceToHost, stream));
  ASSERT_CUDA(cudaFreeAsync(pointer, stream));
  EXPECT_EQ(attributes_of(pointer).type, cudaMemoryTypeDevice);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(*value, 0x11111111);
  EXPECT_CUDA(cudaFreeHost(value));
  EXPECT_EQ(attributes_of(pointer).type, cudaMemoryTypeUnregistered);
  EXPECT_CUDA_ERROR(cudaFreeAsync(pointer, stream), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(Memory, FreeingWaitsForTheDevice) {
  StreamOwner stream;
  DeviceArray<int> kept(1);
  int* pointer = nullptr;
  ASSERT_CUDA(cudaMalloc(&pointer, sizeof *pointer));
  ASSERT_CUDA(cudaMemsetAsync(pointer, 1, sizeof *pointer, stream));
  ASSERT_CUDA(cudaMemcpyAsync(kept.get(), pointer, sizeof *pointer, cudaMemcpyDeviceToDevice, stream));
  ASSERT_CUDA(cudaFree(pointer));
  EXPECT_CUDA(cudaStreamQuery(stream));
  EXPECT_THAT(kept.values(), testing::ElementsAre(0x01010101));
}

TEST(Memory, LiesInAFileThatCanBeMappedAgain) {
  char* pointer = nullptr;
  ASSERT_CUDA(cudaMalloc(&pointer, 10000));
  int fd = -1;
  size_t offset = 0;
  size_t size = 0;
  ASSERT_EQ(vgpuMemoryShareable(pointer + 100, &fd, &offset, &size), 1);
  EXPECT_EQ(size, 9900u);
  const size_t page = offset - offset % static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* mapping = mmap(nullptr, offset - page + size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(page));
  ASSERT_NE(mapping, MAP_FAILED);
  static_cast<char*>(mapping)[offset - page] = 42;
  EXPECT_EQ(pointer[100], 42);
  munmap(mapping, offset - page + size);
  EXPECT_EQ(vgpuMemoryShareable(&fd, nullptr, nullptr, nullptr), 0);
  EXPECT_EQ(vgpuMemoryShareable(pointer, nullptr, nullptr, nullptr), 1);
  ASSERT_CUDA(cudaFree(pointer));
}

TEST(Memory, IsAllocatedByManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      ASSERT_CUDA(cudaSetDevice(t));
      std::vector<char*> pointers;
      for (size_t i = 0; i < 200; ++i) {
        char* pointer = nullptr;
        ASSERT_CUDA(cudaMalloc(&pointer, 1 + i * 37));
        std::memset(pointer, t, 1 + i * 37);
        pointers.push_back(pointer);
        if (i % 3 != 0) continue;
        ASSERT_EQ(pointers[i / 2][0], t);
      }
      for (char* pointer : pointers) ASSERT_CUDA(cudaFree(pointer));
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace nitinol::vgpu::test
