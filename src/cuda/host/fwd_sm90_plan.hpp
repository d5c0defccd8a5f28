// From a problem to the Hopper forward kernel's configuration, name and launch.
#pragma once

#include <optional>
#include <string>

#include "core/problem.hpp"
#include "cuda/host/driver.hpp"
#include "cuda/host/jit.hpp"
#include "cuda/shared/fwd_sm90_config.hpp"
#include "cuda/shared/fwd_sm90_params.hpp"

namespace onchip::cuda {

constexpr const char* kFwdSm90Name = "cuda_fwd_sm90";
constexpr const char* kFwdSm90Arch = "sm_90a";

/// Why the kernel cannot compute the problem on a Hopper GPU, or leaves it to others, or nothing.
std::optional<std::string> fwd_sm90_reject(const Problem& problem, int multiprocessors);

/// Of a problem that is not rejected.
FwdSm90Config fwd_sm90_config(const Problem& problem, int multiprocessors);

/// Everything but the tensor maps and the counter of tiles; `grid` CTAs.
struct FwdSm90Launch {
  FwdSm90Params params;
  std::int64_t grid;
  bool shares_out;  // tiles differ in length: CTAs take them one by one, counting in the workspace
};
FwdSm90Launch fwd_sm90_launch(const Problem& problem, const FwdSm90Config& config, int multiprocessors, int l2_bytes);

/// Encodes the tensor maps of a launch.
Status encode_tensor_maps(const Driver& driver, const Problem& problem, const FwdSm90Config& config,
                          FwdSm90Params& params);

/// "fwd_sm90_bf16_d128_m128n176", with the features that are compiled in.
std::string fwd_sm90_name(const FwdSm90Config& config);

KernelRequest fwd_sm90_request(const FwdSm90Config& config, const std::string& arch);

}  // namespace onchip::cuda
