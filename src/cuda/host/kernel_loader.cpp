#include "cuda/host/kernel_loader.hpp"

#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>

namespace onchip::cuda {
namespace {

struct Loaded {
  std::shared_mutex mutex;
  std::map<int, std::map<std::string, Function, std::less<>>> functions;  // by device ordinal and identity
};

Loaded& loaded() {
  static Loaded kernels;
  return kernels;
}

Status load(const Driver& driver, const KernelRequest& request, int shared_bytes, Module& module, Function& function) {
  std::vector<char> cubin;
  CubinOrigin origin;
  ONCHIP_RETURN_IF_ERROR(get_cubin(request, cubin, origin));
  ONCHIP_DRIVER_CALL(driver, cuModuleLoadData, &module, cubin.data());
  const DriverResult found = driver.cuModuleGetFunction(&function, module, request.name.c_str());
  const DriverResult allowed = found == kDriverSuccess
                                   ? driver.cuFuncSetAttribute(function, kFunctionMaxDynamicSharedBytes, shared_bytes)
                                   : found;
  if (allowed == kDriverSuccess) return {};
  driver.cuModuleUnload(module);
  return driver.check(allowed, found == kDriverSuccess ? "cuFuncSetAttribute" : "cuModuleGetFunction");
}

}  // namespace

Status find_kernel(const Driver& driver, const Gpu& gpu, std::string_view identity, int shared_bytes,
                   const std::function<KernelRequest()>& make_request, Function& function) {
  Loaded& kernels = loaded();
  {
    const std::shared_lock lock(kernels.mutex);
    if (const auto of_gpu = kernels.functions.find(gpu.ordinal); of_gpu != kernels.functions.end())
      if (const auto known = of_gpu->second.find(identity); known != of_gpu->second.end()) {
        function = known->second;
        return {};
      }
  }
  // Not under the lock: a compilation takes seconds, in which other threads go on launching what they have.
  Module module = nullptr;
  ONCHIP_RETURN_IF_ERROR(load(driver, make_request(), shared_bytes, module, function));
  const std::unique_lock lock(kernels.mutex);
  const auto [entry, inserted] = kernels.functions[gpu.ordinal].emplace(identity, function);
  if (!inserted) {  // another thread was faster
    driver.cuModuleUnload(module);
    function = entry->second;
  }
  return {};
}

}  // namespace onchip::cuda
