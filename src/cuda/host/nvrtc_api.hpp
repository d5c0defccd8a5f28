// NVRTC's entry points in use, declared here so that building needs no toolkit. tests/cuda/declarations_test holds them
// against the real header where that is installed.
#pragma once

#include <cstddef>

namespace onchip::cuda {

using NvrtcResult = int;  // nvrtcResult
using NvrtcProgram = struct NvrtcProgramHandle*;

constexpr NvrtcResult kNvrtcSuccess = 0;

// X(name, result, parameters…)
#define ONCHIP_NVRTC_ENTRIES(X)                                                                                \
  X(nvrtcVersion, NvrtcResult, int* major, int* minor)                                                         \
  X(nvrtcGetErrorString, const char*, NvrtcResult result)                                                      \
  X(nvrtcCreateProgram, NvrtcResult, NvrtcProgram* program, const char* source, const char* name, int headers, \
    const char* const* header_sources, const char* const* header_names)                                        \
  X(nvrtcDestroyProgram, NvrtcResult, NvrtcProgram* program)                                                   \
  X(nvrtcCompileProgram, NvrtcResult, NvrtcProgram program, int options, const char* const* option_texts)      \
  X(nvrtcGetProgramLogSize, NvrtcResult, NvrtcProgram program, std::size_t* size)                              \
  X(nvrtcGetProgramLog, NvrtcResult, NvrtcProgram program, char* log)                                          \
  X(nvrtcGetCUBINSize, NvrtcResult, NvrtcProgram program, std::size_t* size)                                   \
  X(nvrtcGetCUBIN, NvrtcResult, NvrtcProgram program, char* cubin)

}  // namespace onchip::cuda
