#include "cuda/host/driver.hpp"

#include <cstdlib>

#include "cuda/host/dynamic_library.hpp"

namespace onchip::cuda {
namespace {

constexpr int kOldestVersion = 12040;

Status check_version(const Driver& driver) {
  if (driver.version >= kOldestVersion) return {};
  return unsupported("{}: CUDA driver {}.{}, expected {}.{} or newer", driver.path, driver.version / 1000,
                     driver.version % 1000 / 10, kOldestVersion / 1000, kOldestVersion % 1000 / 10);
}

}  // namespace

Status Driver::check(DriverResult result, const char* call) const {
  if (result == kDriverSuccess) return {};
  const char* error_name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &error_name) != kDriverSuccess || error_name == nullptr) error_name = "unknown error";
  if (cuGetErrorString(result, &text) != kDriverSuccess || text == nullptr) text = "no description";
  const StatusCode code = result == kDriverOutOfMemory ? StatusCode::out_of_memory : StatusCode::internal;
  return {code, fmt::format("cuda: {} failed with {} ({}): {}", call, error_name, result, text)};
}

Status load_driver(Driver& driver) {
  const char* chosen = std::getenv("ONCHIP_CUDA_DRIVER");
  const std::string candidates[] = {chosen != nullptr && *chosen != '\0' ? chosen : "libcuda.so.1"};
  DynamicLibrary library;
  ONCHIP_RETURN_IF_ERROR(DynamicLibrary::open(candidates, "CUDA driver", library));
  driver.path = library.path();
#define ONCHIP_ENTRY(name, ...) ONCHIP_RETURN_IF_ERROR(bind(library, #name, driver.name));
  ONCHIP_DRIVER_ENTRIES(ONCHIP_ENTRY)
#undef ONCHIP_ENTRY
  ONCHIP_DRIVER_CALL(driver, cuDriverGetVersion, &driver.version);
  ONCHIP_RETURN_IF_ERROR(check_version(driver));
  ONCHIP_DRIVER_CALL(driver, cuInit, 0);
  return {};
}

const DriverInUse& driver_in_use() {
  static const DriverInUse opened = [] {
    DriverInUse result;
    result.status = load_driver(result.driver);
    return result;
  }();
  return opened;
}

}  // namespace onchip::cuda
