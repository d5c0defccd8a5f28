// One launch of a kernel on the GPU that holds a call's tensors.
#pragma once

#include <string_view>
#include <type_traits>

#include "cuda/host/gpu.hpp"
#include "cuda/host/kernel_loader.hpp"

namespace onchip::cuda {

/// The bytes of a value that has no padding.
template <typename T>
std::string_view bytes_of(const T& value) {
  static_assert(std::has_unique_object_representations_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

struct LaunchShape {
  std::int64_t grid_x;
  std::int64_t grid_y;
  int threads;
  int shared_bytes;
  bool follows = false;  // the kernel waits itself for the one before it, and may be launched ahead
};

/// A GPU whose context is current, and a stream of it.
class LaunchSite {
 public:
  LaunchSite(const Driver& driver, void* stream)
      : driver_(driver), current_(driver), stream_(static_cast<Stream>(stream)) {}

  Status enter(int device);
  const Gpu& gpu() const { return *gpu_; }

  /// Queues a kernel with one parameter. `identity` and `make_request` are those of find_kernel().
  template <typename Params, typename MakeRequest>
  Status launch(std::string_view identity, const MakeRequest& make_request, const LaunchShape& shape, Params& params) {
    Function function = nullptr;
    ONCHIP_RETURN_IF_ERROR(find_kernel(driver_, *gpu_, identity, shape.shared_bytes, make_request, function));
    return launch(function, shape, &params);
  }

 private:
  Status launch(Function function, const LaunchShape& shape, void* params) const;

  const Driver& driver_;
  CurrentGpu current_;
  Stream stream_;
  const Gpu* gpu_ = nullptr;
};

}  // namespace onchip::cuda
