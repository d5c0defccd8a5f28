// The Hopper forward kernel as an implementation.
#include "cuda/host/fwd_sm90_plan.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/implementations.hpp"

namespace onchip::cuda {
namespace {

constexpr int kHopper = 90;
constexpr std::size_t kCounterBytes = 64;  // of the workspace, for one integer

std::optional<std::string> reject(const Problem& problem) {
  if (problem.args.device < 0) return "the tensors are in host memory (device is −1)";
  const Gpu* gpu = nullptr;
  if (const Status status = gpu_of(problem, gpu); !status.ok()) return status.message();
  if (gpu->capability != kHopper)
    return fmt::format("{} has compute capability {}.{}, expected 9.0", gpu->name, gpu->capability / 10,
                       gpu->capability % 10);
  return fwd_sm90_reject(problem, gpu->multiprocessors);
}

void configure(const Problem& problem, Plan& plan) {
  const Gpu* gpu = nullptr;
  if (!gpu_of(problem, gpu).ok() || gpu == nullptr) return;
  const FwdSm90Config config = fwd_sm90_config(problem, gpu->multiprocessors);
  plan.tile.tile_m = config.attention.tile_m;
  plan.tile.tile_n = config.attention.tile_n;
  plan.tile.num_splits = 1;
  plan.tile.heads_per_tile = 1;
  plan.num_threads = 1;
  const FwdSm90Launch launch = fwd_sm90_launch(problem, config, gpu->multiprocessors, gpu->l2_bytes);
  plan.workspace_bytes = launch.shares_out ? kCounterBytes : 0;
}

Status run(const Problem& problem, const Plan&, std::span<std::byte> workspace) {
  const Driver& driver = driver_in_use().driver;
  LaunchSite site(driver, problem.args.stream);
  ONCHIP_RETURN_IF_ERROR(site.enter(problem.args.device));
  const FwdSm90Config config = fwd_sm90_config(problem, site.gpu().multiprocessors);
  FwdSm90Launch launch = fwd_sm90_launch(problem, config, site.gpu().multiprocessors, site.gpu().l2_bytes);
  if (launch.grid == 0) return {};
  ONCHIP_RETURN_IF_ERROR(encode_tensor_maps(driver, problem, config, launch.params));
  if (launch.shares_out) {
    launch.params.next_tile = reinterpret_cast<std::int32_t*>(workspace.data());
    ONCHIP_DRIVER_CALL(driver, cuMemsetD32Async, reinterpret_cast<DevicePointer>(workspace.data()), 0, 1,
                       static_cast<Stream>(problem.args.stream));
  }
  return site.launch(
      bytes_of(config), [&] { return fwd_sm90_request(config, site.gpu().arch()); },
      {launch.grid, 1, FwdSm90Config::kThreads, config.shared_bytes()}, launch.params);
}

}  // namespace

const Implementation kFwdSm90 = {kFwdSm90Name, Backend::cuda, Pass::forward, reject, configure, run};

}  // namespace onchip::cuda
