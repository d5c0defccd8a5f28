// The portable forward kernel as an implementation.
#include <string_view>
#include <type_traits>

#include "cuda/host/gpu.hpp"
#include "cuda/host/kernel_loader.hpp"
#include "cuda/host/portable_plan.hpp"
#include "cuda/implementations.hpp"

namespace onchip::cuda {
namespace {

// Its bytes are the identity of a loaded kernel: no padding, whose content would be anything.
static_assert(std::has_unique_object_representations_v<PortableConfig>);

/// The GPU that holds the problem's tensors.
Status gpu_of(const Problem& problem, const Gpu*& gpu) {
  const DriverInUse& opened = driver_in_use();
  ONCHIP_RETURN_IF_ERROR(opened.status);
  return find_gpu(opened.driver, problem.args.device, gpu);
}

PortableTarget target_of(const Gpu& gpu) { return {gpu.shared_bytes_per_block}; }

std::optional<std::string> reject(const Problem& problem) {
  if (problem.args.device < 0) return "the tensors are in host memory (device is −1)";
  if (std::optional<std::string> reason = portable_reject(problem)) return reason;
  const Gpu* gpu = nullptr;
  if (const Status status = gpu_of(problem, gpu); !status.ok()) return status.message();
  if (const Status status = check_capability(*gpu); !status.ok()) return status.message();
  const PortableConfig config = portable_config(problem, target_of(*gpu));
  if (config.shared_bytes() > gpu->shared_bytes_per_block)
    return fmt::format("needs {} bytes of shared memory, {} has {}", config.shared_bytes(), gpu->name,
                       gpu->shared_bytes_per_block);
  return std::nullopt;
}

void configure(const Problem& problem, Plan& plan) {
  const Gpu* gpu = nullptr;
  if (!gpu_of(problem, gpu).ok() || gpu == nullptr) return;
  const PortableConfig config = portable_config(problem, target_of(*gpu));
  plan.tile.tile_m = config.tile_m;
  plan.tile.tile_n = config.tile_n;
  plan.num_threads = 1;
  plan.workspace_bytes = 0;
}

Status run(const Problem& problem, const Plan&, std::span<std::byte>) {
  const Driver& driver = driver_in_use().driver;
  const Gpu* gpu = nullptr;
  ONCHIP_RETURN_IF_ERROR(gpu_of(problem, gpu));
  // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): without an error there is a GPU
  const PortableConfig config = portable_config(problem, target_of(*gpu));
  PortableLaunch launch = portable_launch(problem, config, gpu->l2_bytes);
  if (launch.grid_x == 0) return {};

  CurrentGpu current(driver);
  ONCHIP_RETURN_IF_ERROR(current.enter(*gpu));
  Function function = nullptr;
  const std::string_view identity(reinterpret_cast<const char*>(&config), sizeof config);
  ONCHIP_RETURN_IF_ERROR(find_kernel(
      driver, *gpu, identity, config.shared_bytes(), [&] { return portable_request(config, gpu->arch()); }, function));
  void* parameters[] = {&launch.params};
  ONCHIP_DRIVER_CALL(driver, cuLaunchKernel, function, static_cast<unsigned>(launch.grid_x),
                     static_cast<unsigned>(launch.grid_y), 1, static_cast<unsigned>(config.threads()), 1, 1,
                     static_cast<unsigned>(config.shared_bytes()), static_cast<Stream>(problem.args.stream), parameters,
                     nullptr);
  return {};
}

}  // namespace

const Implementation kPortableForward = {"cuda_portable_forward", Backend::cuda, Pass::forward, reject, configure, run};

}  // namespace onchip::cuda
