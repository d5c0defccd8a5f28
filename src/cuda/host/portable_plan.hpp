// From a problem to the portable kernel's configuration, name and launch.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/problem.hpp"
#include "cuda/host/jit.hpp"
#include "cuda/shared/portable_config.hpp"
#include "cuda/shared/portable_params.hpp"

namespace onchip::cuda {

/// What a plan depends on besides the problem.
struct PortableTarget {
  int shared_bytes_per_block;
  int multiprocessors;
};

/// A configuration, and into how many parts keys are split: with more than one the configuration writes partial
/// results.
struct PortablePlan {
  PortableConfig config;
  std::int64_t num_splits = 1;
  std::int64_t split_size = 0;  // keys; 0: equal parts of what a tile sees
};
PortablePlan portable_plan(const Problem& problem, const PortableTarget& target);

/// The target of an architecture by name, for GPUs that are not in the machine: the largest of its kind.
Status portable_target(const std::string& arch, PortableTarget& target);

/// Bytes for the partial results of splits.
std::size_t portable_workspace_bytes(const Problem& problem, const PortablePlan& plan);

/// Grid of a launch; the block has config.threads() threads. `workspace` holds portable_workspace_bytes().
struct PortableLaunch {
  PortableParams params;
  std::int64_t grid_x;
  std::int64_t grid_y;
};
PortableLaunch portable_launch(const Problem& problem, const PortablePlan& plan, int l2_bytes, std::byte* workspace);

/// The launch that merges the splits, with a CTA of kCombineThreads threads a row.
constexpr int kCombineThreads = 128;
CombineParams combine_params(const Problem& problem, const PortablePlan& plan, std::byte* workspace);

/// Why the kernel cannot compute the problem on any GPU, or nothing.
std::optional<std::string> portable_reject(const Problem& problem);

/// What o is stored as.
Element output_element(const Problem& problem);

/// "portable_forward_bf16_d128_m128n64", with the features that are compiled in.
std::string portable_name(const PortableConfig& config);

KernelRequest portable_request(const PortableConfig& config, const std::string& arch);
KernelRequest combine_request(Element o_type, const std::string& arch);

/// What the problem may need: batch and lengths decide about splits, so these are the kernels with and without.
std::vector<KernelRequest> portable_requests(const Problem& problem, const PortableTarget& target,
                                             const std::string& arch);

}  // namespace onchip::cuda
