#include "cuda/host/gpu.hpp"

#include <map>
#include <memory>
#include <mutex>

#include "cuda/implementations.hpp"

namespace onchip::cuda {
namespace {

constexpr int kNameLength = 256;
constexpr int kOldestCapability = 80;

Status open_gpu(const Driver& driver, int ordinal, Gpu& gpu) {
  int count = 0;
  ONCHIP_DRIVER_CALL(driver, cuDeviceGetCount, &count);
  if (ordinal < 0 || ordinal >= count)
    return invalid("device: {}, expected 0 to {}, the CUDA devices of this machine", ordinal, count - 1);
  gpu.ordinal = ordinal;
  ONCHIP_DRIVER_CALL(driver, cuDeviceGet, &gpu.device, ordinal);
  char name[kNameLength] = {};
  ONCHIP_DRIVER_CALL(driver, cuDeviceGetName, name, kNameLength, gpu.device);
  gpu.name = name;
  int major = 0, minor = 0;
  const std::pair<int, int*> attributes[] = {
      {kAttributeCapabilityMajor, &major},
      {kAttributeCapabilityMinor, &minor},
      {kAttributeMultiprocessors, &gpu.multiprocessors},
      {kAttributeL2Bytes, &gpu.l2_bytes},
      {kAttributeSharedBytesPerBlock, &gpu.shared_bytes_per_block},
      {kAttributeSharedBytesPerMultiprocessor, &gpu.shared_bytes_per_multiprocessor}};
  for (const auto& [attribute, value] : attributes)
    ONCHIP_DRIVER_CALL(driver, cuDeviceGetAttribute, value, attribute, gpu.device);
  ONCHIP_DRIVER_CALL(driver, cuDeviceTotalMem_v2, &gpu.memory_bytes, gpu.device);
  gpu.capability = major * 10 + minor;
  gpu.machine = model::gpu_machine(gpu.name, gpu.multiprocessors, gpu.shared_bytes_per_block, gpu.l2_bytes);
  ONCHIP_DRIVER_CALL(driver, cuDevicePrimaryCtxRetain, &gpu.context, gpu.device);
  return {};
}

}  // namespace

std::string Gpu::arch() const { return fmt::format("sm_{}{}", capability, capability >= 90 ? "a" : ""); }

Status find_gpu(const Driver& driver, int ordinal, const Gpu*& gpu) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<Gpu>> opened;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Gpu>& known = opened[ordinal];
  if (known == nullptr) {
    auto found = std::make_unique<Gpu>();
    ONCHIP_RETURN_IF_ERROR(open_gpu(driver, ordinal, *found));
    known = std::move(found);
  }
  gpu = known.get();
  return {};
}

Status gpu_of(const Problem& problem, const Gpu*& gpu) {
  const DriverInUse& opened = driver_in_use();
  ONCHIP_RETURN_IF_ERROR(opened.status);
  return find_gpu(opened.driver, problem.args.device, gpu);
}

const model::Machine& machine_of(const Problem& problem) {
  static const model::Machine none = model::gpu_machine("unknown", 1, 0, 0);
  const Gpu* gpu = nullptr;
  return gpu_of(problem, gpu).ok() && gpu != nullptr ? gpu->machine : none;
}

Status check_capability(const Gpu& gpu) {
  if (gpu.capability >= kOldestCapability) return {};
  return unsupported("{} has compute capability {}.{}, expected {}.{} or newer", gpu.name, gpu.capability / 10,
                     gpu.capability % 10, kOldestCapability / 10, kOldestCapability % 10);
}

CurrentGpu::~CurrentGpu() {
  Context popped = nullptr;
  if (pushed_) driver_.cuCtxPopCurrent_v2(&popped);
}

Status CurrentGpu::enter(const Gpu& gpu) {
  Context current = nullptr;
  ONCHIP_DRIVER_CALL(driver_, cuCtxGetCurrent, &current);
  if (current == gpu.context) return {};
  ONCHIP_DRIVER_CALL(driver_, cuCtxPushCurrent_v2, gpu.context);
  pushed_ = true;
  return {};
}

}  // namespace onchip::cuda
