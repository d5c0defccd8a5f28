#include "cuda/workspace.hpp"

#include "cuda/host/driver.hpp"
#include "cuda/host/gpu.hpp"

namespace onchip::cuda {

StreamWorkspace::~StreamWorkspace() {
  if (memory_ == nullptr) return;
  const Driver& driver = driver_in_use().driver;
  const Gpu* gpu = nullptr;
  CurrentGpu current(driver);
  if (find_gpu(driver, device_, gpu).ok() && current.enter(*gpu).ok())
    driver.cuMemFreeAsync(reinterpret_cast<DevicePointer>(memory_), static_cast<Stream>(stream_));
}

Status StreamWorkspace::allocate(int device, void* stream, std::size_t bytes) {
  if (bytes == 0) return {};
  const DriverInUse& opened = driver_in_use();
  ONCHIP_RETURN_IF_ERROR(opened.status);
  const Gpu* gpu = nullptr;
  ONCHIP_RETURN_IF_ERROR(find_gpu(opened.driver, device, gpu));
  CurrentGpu current(opened.driver);
  // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): without an error there is a GPU
  ONCHIP_RETURN_IF_ERROR(current.enter(*gpu));
  DevicePointer allocated = 0;
  ONCHIP_DRIVER_CALL(opened.driver, cuMemAllocAsync, &allocated, bytes, static_cast<Stream>(stream));
  device_ = device;
  stream_ = stream;
  memory_ = reinterpret_cast<std::byte*>(allocated);  // NOLINT(performance-no-int-to-ptr): the driver counts addresses
  size_ = bytes;
  return {};
}

}  // namespace onchip::cuda
