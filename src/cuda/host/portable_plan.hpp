// From a problem to the portable kernel's configuration, name and launch.
#pragma once

#include <optional>
#include <string>

#include "core/problem.hpp"
#include "cuda/host/jit.hpp"
#include "cuda/shared/portable_config.hpp"
#include "cuda/shared/portable_params.hpp"

namespace onchip::cuda {

/// What a configuration depends on besides the problem.
struct PortableTarget {
  int shared_bytes_per_block;
};

PortableConfig portable_config(const Problem& problem, const PortableTarget& target);

/// The target of an architecture by name, for GPUs that are not in the machine.
Status portable_target(const std::string& arch, PortableTarget& target);

/// Grid of a launch; the block has config.threads() threads.
struct PortableLaunch {
  PortableParams params;
  std::int64_t grid_x;
  std::int64_t grid_y;
};
PortableLaunch portable_launch(const Problem& problem, const PortableConfig& config, int l2_bytes);

/// Why the kernel cannot compute the problem on any GPU, or nothing.
std::optional<std::string> portable_reject(const Problem& problem);

/// "portable_forward_bf16_d128_m128n64", with the features that are compiled in.
std::string portable_name(const PortableConfig& config);

KernelRequest portable_request(const PortableConfig& config, const std::string& arch);

}  // namespace onchip::cuda
