// The CUDA driver's entry points in use, declared here so that building needs no toolkit. tests/cuda/declarations_test
// holds them against the real headers where those are installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/shared/tensor_map.hpp"

namespace onchip::cuda {

using DriverResult = int;  // CUresult
using Device = int;        // CUdevice
using Context = struct ContextHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using Stream = struct StreamHandle*;
using DevicePointer = unsigned long long;  // CUdeviceptr

constexpr DriverResult kDriverSuccess = 0;
constexpr DriverResult kDriverOutOfMemory = 2;

constexpr int kAttributeMultiprocessors = 16;
constexpr int kAttributeL2Bytes = 38;
constexpr int kAttributeCapabilityMajor = 75;
constexpr int kAttributeCapabilityMinor = 76;
constexpr int kAttributeSharedBytesPerMultiprocessor = 81;
constexpr int kAttributeSharedBytesPerBlock = 97;  // opt-in

constexpr int kFunctionMaxDynamicSharedBytes = 8;

/// CUlaunchAttribute; the kernel may begin before the one before it in the stream has ended.
constexpr int kLaunchProgrammaticSerialization = 6;
struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    int allowed;
    char bytes[64];
  } value;
};

/// CUlaunchConfig
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};

// Of tensor maps: CUtensorMapDataType and the enumerations after it.
constexpr int kTensorMapFloat16 = 6;
constexpr int kTensorMapBFloat16 = 9;
constexpr int kTensorMapNoInterleave = 0;
constexpr int kTensorMapSwizzle128 = 3;
constexpr int kTensorMapPromoteTo256 = 3;
constexpr int kTensorMapZeroFill = 0;

// X(name, result, parameters…)
#define ONCHIP_DRIVER_ENTRIES(X)                                                                                   \
  X(cuInit, DriverResult, unsigned flags)                                                                          \
  X(cuDriverGetVersion, DriverResult, int* version)                                                                \
  X(cuGetErrorName, DriverResult, DriverResult error, const char** name)                                           \
  X(cuGetErrorString, DriverResult, DriverResult error, const char** text)                                         \
  X(cuDeviceGetCount, DriverResult, int* count)                                                                    \
  X(cuDeviceGet, DriverResult, Device* device, int ordinal)                                                        \
  X(cuDeviceGetName, DriverResult, char* name, int size, Device device)                                            \
  X(cuDeviceGetAttribute, DriverResult, int* value, int attribute, Device device)                                  \
  X(cuDeviceTotalMem_v2, DriverResult, std::size_t* bytes, Device device)                                          \
  X(cuDevicePrimaryCtxRetain, DriverResult, Context* context, Device device)                                       \
  X(cuCtxGetCurrent, DriverResult, Context* context)                                                               \
  X(cuCtxPushCurrent_v2, DriverResult, Context context)                                                            \
  X(cuCtxPopCurrent_v2, DriverResult, Context* context)                                                            \
  X(cuCtxSynchronize, DriverResult)                                                                                \
  X(cuMemAlloc_v2, DriverResult, DevicePointer* pointer, std::size_t bytes)                                        \
  X(cuMemFree_v2, DriverResult, DevicePointer pointer)                                                             \
  X(cuMemAllocAsync, DriverResult, DevicePointer* pointer, std::size_t bytes, Stream stream)                       \
  X(cuMemFreeAsync, DriverResult, DevicePointer pointer, Stream stream)                                            \
  X(cuMemcpyHtoD_v2, DriverResult, DevicePointer to, const void* from, std::size_t bytes)                          \
  X(cuMemcpyDtoH_v2, DriverResult, void* to, DevicePointer from, std::size_t bytes)                                \
  X(cuMemsetD32Async, DriverResult, DevicePointer pointer, unsigned value, std::size_t count, Stream stream)       \
  X(cuModuleLoadData, DriverResult, Module* module, const void* image)                                             \
  X(cuModuleGetFunction, DriverResult, Function* function, Module module, const char* name)                        \
  X(cuModuleUnload, DriverResult, Module module)                                                                   \
  X(cuFuncSetAttribute, DriverResult, Function function, int attribute, int value)                                 \
  X(cuTensorMapEncodeTiled, DriverResult, TensorMap* map, int type, std::uint32_t rank, void* address,             \
    const std::uint64_t* sizes, const std::uint64_t* strides, const std::uint32_t* box,                            \
    const std::uint32_t* element_strides, int interleave, int swizzle, int promotion, int fill)                    \
  X(cuLaunchKernel, DriverResult, Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,            \
    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters, \
    void** extra)                                                                                                  \
  X(cuLaunchKernelEx, DriverResult, const LaunchConfig* config, Function function, void** parameters, void** extra)

}  // namespace onchip::cuda
