// Holds our declarations of the driver and of NVRTC against the real headers. Built where those are installed.
#include <cuda.h>
#include <gtest/gtest.h>
#include <nvrtc.h>

#include <type_traits>

#include "cuda/gpu.hpp"
#include "cuda/host/driver_api.hpp"
#include "cuda/host/nvrtc_api.hpp"

namespace onchip::test {
namespace {

/// What the calling convention sees of a type: pointers are alike, and so are integers and enumerators of one size.
template <typename T>
constexpr int kind_of() {
  if constexpr (std::is_pointer_v<T>) return 1;
  if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) return 2;
  return 3;
}

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};

template <typename R1, typename... P1, typename R2, typename... P2>
requires(sizeof...(P1) == sizeof...(P2)) struct SameCall<R1 (*)(P1...), R2(P2...)>
    : std::bool_constant<sizeof(R1) == sizeof(R2) && kind_of<R1>() == kind_of<R2>() &&
                         ((sizeof(P1) == sizeof(P2) && kind_of<P1>() == kind_of<P2>()) && ...)> {
};

namespace in_our_words {
using namespace cuda;
#define ONCHIP_CHECK(name, result, ...) \
  static_assert(SameCall<result (*)(__VA_ARGS__), decltype(::name)>::value, #name);
ONCHIP_DRIVER_ENTRIES(ONCHIP_CHECK)
ONCHIP_NVRTC_ENTRIES(ONCHIP_CHECK)
#undef ONCHIP_CHECK
#define ONCHIP_CHECK(name, ...) static_assert(SameCall<DriverResult (*)(__VA_ARGS__), decltype(::name)>::value, #name);
ONCHIP_TEST_DRIVER_ENTRIES(ONCHIP_CHECK)
#undef ONCHIP_CHECK
}  // namespace in_our_words

TEST(Declarations, StructuresAreTheHeaders) {
  static_assert(sizeof(cuda::LaunchAttribute) == sizeof(CUlaunchAttribute));
  static_assert(offsetof(cuda::LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
  static_assert(sizeof(cuda::LaunchConfig) == sizeof(CUlaunchConfig));
  static_assert(offsetof(cuda::LaunchConfig, block_x) == offsetof(CUlaunchConfig, blockDimX));
  static_assert(offsetof(cuda::LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
  static_assert(offsetof(cuda::LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
  static_assert(offsetof(cuda::LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
  static_assert(offsetof(cuda::LaunchConfig, num_attributes) == offsetof(CUlaunchConfig, numAttrs));
  EXPECT_EQ(cuda::kLaunchProgrammaticSerialization, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
}

TEST(Declarations, ConstantsAreTheHeaders) {
  EXPECT_EQ(cuda::kDriverSuccess, CUDA_SUCCESS);
  EXPECT_EQ(cuda::kDriverOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuda::kAttributeMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(cuda::kAttributeL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  EXPECT_EQ(cuda::kAttributeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(cuda::kAttributeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(cuda::kAttributeSharedBytesPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  EXPECT_EQ(cuda::kAttributeSharedBytesPerBlock, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(cuda::kFunctionMaxDynamicSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(cuda::kNvrtcSuccess, NVRTC_SUCCESS);
}

}  // namespace
}  // namespace onchip::test
