// From a kernel's configuration to its machine code: looked up among the prepared kernels and in the cache, else
// compiled.
#pragma once

#include <string>
#include <vector>

#include "core/status.hpp"
#include "cuda/host/cubin_cache.hpp"
#include "cuda/host/nvrtc.hpp"

namespace onchip::cuda {

/// One kernel of one source file, specialised by macros.
struct KernelRequest {
  std::string name;                  // of the entry point, defined as ONCHIP_KERNEL_NAME; spells the configuration
  const char* source;                // embedded file with the entry point
  std::vector<std::string> defines;  // "NAME=VALUE"
  std::string arch;                  // "sm_90a"
};

/// What happened, for explain, compile and tests.
enum class CubinOrigin { prepared, cached, compiled };

/// The request's machine code.
Status get_cubin(const KernelRequest& request, std::vector<char>& cubin, CubinOrigin& origin);

/// Compiles, whatever the cache holds.
Status compile_kernel(const Nvrtc& nvrtc, const KernelRequest& request, Compilation& compilation);

/// The key of a prepared kernel, which any compiler may have made, and of a cached one, which `nvrtc` made.
CubinKey prepared_key(const KernelRequest& request);
CubinKey cached_key(const KernelRequest& request, const Nvrtc& nvrtc);

/// Lines of a compilation log that tell of a slow kernel: register spills, stack frames, serialized wgmma, ignored
/// setmaxnreg. None for a kernel as it should be.
std::vector<std::string> complaints(const std::string& log);

}  // namespace onchip::cuda
