// The kernels of device_steps.hpp.
#pragma once

#include <string>

#include "cuda/host/jit.hpp"
#include "cuda/shared/append_params.hpp"

namespace onchip::cuda {

KernelRequest append_request(const AppendConfig& config, const std::string& arch);
KernelRequest merge_request(const std::string& arch);

}  // namespace onchip::cuda
