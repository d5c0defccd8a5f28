#include "cuda/host/launch.hpp"

namespace onchip::cuda {
namespace {

constexpr int kDependentLaunchCapability = 90;

}  // namespace

Status LaunchSite::enter(int device) {
  ONCHIP_RETURN_IF_ERROR(find_gpu(driver_, device, gpu_));
  return current_.enter(*gpu_);
}

Status LaunchSite::launch(Function function, const LaunchShape& shape, void* params) const {
  void* parameters[] = {params};
  if (shape.follows && gpu_->capability >= kDependentLaunchCapability) {
    LaunchAttribute ahead{kLaunchProgrammaticSerialization, {}, {.allowed = 1}};
    const LaunchConfig config{static_cast<unsigned>(shape.grid_x),
                              static_cast<unsigned>(shape.grid_y),
                              1,
                              static_cast<unsigned>(shape.threads),
                              1,
                              1,
                              static_cast<unsigned>(shape.shared_bytes),
                              stream_,
                              &ahead,
                              1};
    ONCHIP_DRIVER_CALL(driver_, cuLaunchKernelEx, &config, function, parameters, nullptr);
    return {};
  }
  ONCHIP_DRIVER_CALL(driver_, cuLaunchKernel, function, static_cast<unsigned>(shape.grid_x),
                     static_cast<unsigned>(shape.grid_y), 1, static_cast<unsigned>(shape.threads), 1, 1,
                     static_cast<unsigned>(shape.shared_bytes), stream_, parameters, nullptr);
  return {};
}

}  // namespace onchip::cuda
