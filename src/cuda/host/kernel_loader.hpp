// Kernels loaded into GPUs, each once a process and device.
#pragma once

#include <functional>
#include <string_view>

#include "core/status.hpp"
#include "cuda/host/driver.hpp"
#include "cuda/host/gpu.hpp"
#include "cuda/host/jit.hpp"

namespace onchip::cuda {

/// The function that `identity` (any bytes, unique to a configuration) stands for on a GPU. At the first call
/// `make_request` says what to compile, and `shared_bytes` of dynamic shared memory are allowed to it. The GPU's
/// context must be current.
Status find_kernel(const Driver& driver, const Gpu& gpu, std::string_view identity, int shared_bytes,
                   const std::function<KernelRequest()>& make_request, Function& function);

}  // namespace onchip::cuda
