// The CUDA driver, opened at run time.
#pragma once

#include <string>

#include "core/status.hpp"
#include "cuda/host/driver_api.hpp"

namespace onchip::cuda {

struct Driver {
#define ONCHIP_ENTRY(name, result, ...) result (*name)(__VA_ARGS__) = nullptr;
  ONCHIP_DRIVER_ENTRIES(ONCHIP_ENTRY)
#undef ONCHIP_ENTRY
  std::string path;
  int version = 0;  // 1000·major + 10·minor

  /// Ok, or an error that names `call` and carries the driver's own message.
  Status check(DriverResult result, const char* call) const;
};

/// Opens a driver: ONCHIP_CUDA_DRIVER where that is set, else the loader's libcuda.so.1. Initialised, and new enough.
Status load_driver(Driver& driver);

/// The process's driver, opened once; `status` says why there is none.
struct DriverInUse {
  Driver driver;
  Status status;
};
const DriverInUse& driver_in_use();

}  // namespace onchip::cuda

/// Returns the error of a driver call `driver.name(arguments)` from the enclosing function.
#define ONCHIP_DRIVER_CALL(driver, name, ...) ONCHIP_RETURN_IF_ERROR((driver).check((driver).name(__VA_ARGS__), #name))
