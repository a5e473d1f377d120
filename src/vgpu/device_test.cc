// Devices, errors, versions; the narrow float types.
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"
#include "vgpu/test_support.h"

extern "C" int nitinol_vgpu_header_test(void);

namespace nitinol::vgpu::test {
namespace {

TEST(Headers, WorkInC) { EXPECT_EQ(nitinol_vgpu_header_test(), 0); }

TEST(Devices, AreEightUnlessSaidOtherwise) {
  int count = 0;
  ASSERT_CUDA(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 8);
  EXPECT_CUDA_ERROR(cudaGetDeviceCount(nullptr), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(Devices, AreChosenPerThread) {
  ASSERT_CUDA(cudaSetDevice(5));
  int device = -1;
  std::thread([&] { ASSERT_CUDA(cudaGetDevice(&device)); }).join();
  EXPECT_EQ(device, 0);
  ASSERT_CUDA(cudaGetDevice(&device));
  EXPECT_EQ(device, 5);
  EXPECT_CUDA_ERROR(cudaSetDevice(8), cudaErrorInvalidDevice);
  EXPECT_CUDA_ERROR(cudaSetDevice(-1), cudaErrorInvalidDevice);
  ASSERT_CUDA(cudaSetDevice(0));
  cudaGetLastError();
}

TEST(Devices, HaveDistinctProperties) {
  std::set<std::string> buses;
  std::set<std::string> uuids;
  for (int i = 0; i < 8; ++i) {
    cudaDeviceProp prop;
    ASSERT_CUDA(cudaGetDeviceProperties(&prop, i));
    EXPECT_STREQ(prop.name, "Nitinol virtual GPU");
    EXPECT_EQ(prop.major, 9);
    EXPECT_EQ(prop.minor, 0);
    EXPECT_GT(prop.totalGlobalMem, 0u);
    EXPECT_EQ(prop.memoryPoolsSupported, 0);
    char bus[20];
    ASSERT_CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, i));
    buses.insert(bus);
    uuids.insert(std::string(prop.uuid.bytes, sizeof prop.uuid.bytes));
    int found = -1;
    EXPECT_CUDA(cudaDeviceGetByPCIBusId(&found, bus));
    EXPECT_EQ(found, i);
    const std::string without_domain = std::string(bus).substr(std::string(bus).find(':') + 1);
    found = -1;
    EXPECT_CUDA(cudaDeviceGetByPCIBusId(&found, without_domain.c_str()));
    EXPECT_EQ(found, i);
    int value = -1;
    EXPECT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrPciBusId, i));
    EXPECT_EQ(value, prop.pciBusID);
  }
  EXPECT_EQ(buses.size(), 8u);
  EXPECT_EQ(uuids.size(), 8u);
  char small[5];
  EXPECT_CUDA_ERROR(cudaDeviceGetPCIBusId(small, sizeof small, 0), cudaErrorInvalidValue);
  cudaDeviceProp prop;
  EXPECT_CUDA_ERROR(cudaGetDeviceProperties(&prop, 8), cudaErrorInvalidDevice);
  cudaGetLastError();
}

TEST(Devices, AnswerForAttributes) {
  int value = 0;
  EXPECT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
  EXPECT_EQ(value, 9);
  EXPECT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0));
  EXPECT_EQ(value, 32);
  EXPECT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolsSupported, 0));
  EXPECT_EQ(value, 0);
  EXPECT_CUDA_ERROR(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(0), 0), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 8), cudaErrorInvalidDevice);
  cudaGetLastError();
}

TEST(Devices, ReachEachOther) {
  int can = -1;
  ASSERT_CUDA(cudaDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  ASSERT_CUDA(cudaDeviceCanAccessPeer(&can, 1, 1));
  EXPECT_EQ(can, 0);
  EXPECT_CUDA(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_CUDA_ERROR(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  EXPECT_CUDA(cudaDeviceDisablePeerAccess(1));
  EXPECT_CUDA_ERROR(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
  EXPECT_CUDA_ERROR(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
  EXPECT_CUDA_ERROR(cudaDeviceCanAccessPeer(&can, 0, 100), cudaErrorInvalidDevice);
  cudaGetLastError();
}

TEST(Devices, ResetFreesWhatTheyHold) {
  ASSERT_CUDA(cudaSetDevice(7));
  void* pointer = nullptr;
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaMalloc(&pointer, 1000));
  ASSERT_CUDA(cudaStreamCreate(&stream));
  ASSERT_CUDA(cudaMemsetAsync(pointer, 1, 1000, stream));
  std::vector<char> registered(1000);
  ASSERT_CUDA(cudaHostRegister(registered.data(), registered.size(), cudaHostRegisterDefault));
  ASSERT_CUDA(cudaDeviceReset());
  EXPECT_CUDA_ERROR(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA_ERROR(cudaFree(pointer), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_CUDA(cudaHostRegister(registered.data(), registered.size(), cudaHostRegisterDefault));
  EXPECT_CUDA(cudaHostUnregister(registered.data()));
  ASSERT_CUDA(cudaSetDevice(0));
  cudaGetLastError();
}

TEST(Devices, HaveVersionsAndModes) {
  int version = 0;
  EXPECT_CUDA(cudaRuntimeGetVersion(&version));
  EXPECT_EQ(version, CUDART_VERSION);
  EXPECT_CUDA(cudaDriverGetVersion(&version));
  EXPECT_EQ(version, CUDART_VERSION);
  EXPECT_CUDA(cudaSetDeviceFlags(cudaDeviceScheduleSpin));
  unsigned flags = 0;
  EXPECT_CUDA(cudaGetDeviceFlags(&flags));
  EXPECT_EQ(flags, static_cast<unsigned>(cudaDeviceScheduleSpin));
  EXPECT_CUDA(cudaFree(nullptr));
}

TEST(Errors, BelongToTheThread) {
  EXPECT_CUDA_ERROR(cudaSetDevice(100), cudaErrorInvalidDevice);
  std::thread([] { EXPECT_CUDA(cudaGetLastError()); }).join();
  EXPECT_CUDA_ERROR(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_CUDA(cudaFree(nullptr));
  EXPECT_CUDA_ERROR(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_CUDA(cudaGetLastError());
}

TEST(Errors, AreNotThoseOfWorkThatTheThreadDoesWhileItWaits) {
  const StreamOwner stream;
  EXPECT_CUDA_ERROR(cudaSetDevice(100), cudaErrorInvalidDevice);
  enqueue(stream, [] {
    cudaGetLastError();
    cudaFree(reinterpret_cast<void*>(1));
  });
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA_ERROR(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST(Errors, HaveNamesAndTexts) {
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
  EXPECT_STREQ(cudaGetErrorString(cudaSuccess), "no error");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorStreamCaptureUnsupported),
               "operation not permitted when stream is capturing");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(1001)), "unrecognized error code");
}

TEST(NarrowFloats, HalfKeepsEveryValueItHas) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const __half half = __ushort_as_half(static_cast<unsigned short>(bits));
    const float value = __half2float(half);
    if (std::isnan(value)) continue;
    ASSERT_EQ(__half_as_ushort(__float2half(value)), bits);
  }
  EXPECT_EQ(__half_as_ushort(__float2half(65519.0f)), 0x7bff);
  EXPECT_EQ(__half_as_ushort(__float2half(65520.0f)), 0x7c00);
  EXPECT_EQ(__half_as_ushort(__float2half(1.0f + 1.0f / 2048)), 0x3c00);      // a tie: to even
  EXPECT_EQ(__half_as_ushort(__float2half(1.0f + 3.0f / 2048)), 0x3c02);      // a tie: to even
  EXPECT_EQ(__half_as_ushort(__float2half(-std::ldexp(1.0f, -25))), 0x8000);  // half of the smallest: to even
  EXPECT_EQ(__half_as_ushort(__float2half(std::ldexp(1.5f, -25))), 0x0001);
  EXPECT_TRUE(std::isnan(__half2float(__float2half(std::nanf("")))));
}

TEST(NarrowFloats, Bfloat16KeepsEveryValueItHas) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float value = __bfloat162float(__ushort_as_bfloat16(static_cast<unsigned short>(bits)));
    if (std::isnan(value)) continue;
    ASSERT_EQ(__bfloat16_as_ushort(__float2bfloat16(value)), bits);
  }
  EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16(1.0f + 1.0f / 256)), 0x3f80);
  EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16(std::numeric_limits<float>::max())), 0x7f80);
}

TEST(NarrowFloats, EightBitFloatsKeepEveryValueTheyHaveAndSaturate) {
  for (unsigned bits = 0; bits < 0x100; ++bits) {
    __nv_fp8_e4m3 first;
    __nv_fp8_e5m2 second;
    first.__x = second.__x = static_cast<unsigned char>(bits);
    const float a = static_cast<float>(first);
    const float b = static_cast<float>(second);
    EXPECT_TRUE(std::isnan(a) || __nv_fp8_e4m3(a).__x == bits) << bits;
    EXPECT_TRUE(!std::isfinite(b) || __nv_fp8_e5m2(b).__x == bits) << bits;
  }
  EXPECT_EQ(static_cast<float>(__nv_fp8_e4m3(1e9f)), 448.0f);
  EXPECT_EQ(static_cast<float>(__nv_fp8_e4m3(-std::numeric_limits<float>::infinity())), -448.0f);
  EXPECT_EQ(static_cast<float>(__nv_fp8_e5m2(1e9f)), 57344.0f);
  EXPECT_TRUE(std::isnan(static_cast<float>(__nv_fp8_e4m3(std::nanf("")))));
  EXPECT_TRUE(std::isnan(static_cast<float>(__nv_fp8_e5m2(std::nanf("")))));
  EXPECT_EQ(static_cast<float>(__nv_fp8_e4m3(17.0f)), 16.0f);  // a tie: to even
  EXPECT_EQ(static_cast<float>(__nv_fp8_e4m3(19.0f)), 20.0f);
}

}  // namespace
}  // namespace nitinol::vgpu::test
