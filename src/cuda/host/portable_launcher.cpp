// The portable forward kernel as an implementation.
#include "cuda/host/launch.hpp"
#include "cuda/host/portable_plan.hpp"
#include "cuda/implementations.hpp"
#include "cuda/shared/portable_config.hpp"

namespace onchip::cuda {
namespace {

PortableTarget target_of(const Gpu& gpu) { return {gpu.shared_bytes_per_block, gpu.multiprocessors}; }

std::optional<std::string> reject(const Problem& problem) {
  if (problem.args.device < 0) return "the tensors are in host memory (device is −1)";
  if (std::optional<std::string> reason = portable_reject(problem)) return reason;
  const Gpu* gpu = nullptr;
  if (const Status status = gpu_of(problem, gpu); !status.ok()) return status.message();
  if (const Status status = check_capability(*gpu); !status.ok()) return status.message();
  const PortableConfig config = portable_plan(problem, target_of(*gpu)).config;
  if (config.shared_bytes() > gpu->shared_bytes_per_block)
    return fmt::format("needs {} bytes of shared memory, {} has {}", config.shared_bytes(), gpu->name,
                       gpu->shared_bytes_per_block);
  return std::nullopt;
}

void configure(const Problem& problem, Plan& plan) {
  const Gpu* gpu = nullptr;
  if (!gpu_of(problem, gpu).ok() || gpu == nullptr) return;
  const PortablePlan planned = portable_plan(problem, target_of(*gpu));
  plan.tile.tile_m = planned.config.tile_m;
  plan.tile.tile_n = planned.config.tile_n;
  plan.tile.num_splits = planned.num_splits;
  plan.tile.split_size = planned.split_size;
  plan.tile.heads_per_tile = planned.config.heads_per_tile;
  plan.num_threads = 1;
  plan.workspace_bytes = portable_workspace_bytes(problem, planned);
}

Status launch_combine(LaunchSite& site, const Problem& problem, const PortablePlan& plan, std::byte* workspace) {
  const Element o_type = output_element(problem);
  CombineParams params = combine_params(problem, plan, workspace);
  return site.launch(
      bytes_of(o_type), [&] { return combine_request(o_type, site.gpu().arch()); },
      {params.rows, 1, kCombineThreads, 0, true}, params);
}

Status run(const Problem& problem, const Plan&, std::span<std::byte> workspace) {
  LaunchSite site(driver_in_use().driver, problem.args.stream);
  ONCHIP_RETURN_IF_ERROR(site.enter(problem.args.device));
  const PortablePlan plan = portable_plan(problem, target_of(site.gpu()));
  const PortableConfig& config = plan.config;
  PortableLaunch launch = portable_launch(problem, plan, site.gpu().l2_bytes, workspace.data());
  if (launch.grid_x == 0) return {};
  ONCHIP_RETURN_IF_ERROR(site.launch(
      bytes_of(config), [&] { return portable_request(config, site.gpu().arch()); },
      {launch.grid_x, launch.grid_y, config.threads(), config.shared_bytes()}, launch.params));
  return plan.num_splits > 1 ? launch_combine(site, problem, plan, workspace.data()) : Status{};
}

}  // namespace

const Implementation kPortableForward = {"cuda_portable_forward", Backend::cuda, Pass::forward, reject, configure, run};

}  // namespace onchip::cuda
