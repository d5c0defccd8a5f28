// Stands in for NVIDIA's driver, so that its discovery is tested on machines without one: one device, and an error from
// cuInit where ONCHIP_FAKE_CUINIT asks for it.
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#define ONCHIP_EXPORT extern "C" __attribute__((visibility("default")))

ONCHIP_EXPORT int cuInit(unsigned) {
  const char* error = std::getenv("ONCHIP_FAKE_CUINIT");
  return error == nullptr ? 0 : std::atoi(error);
}

ONCHIP_EXPORT int cuDriverGetVersion(int* version) {
  *version = 12040;
  return 0;
}

ONCHIP_EXPORT int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}

ONCHIP_EXPORT int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, static_cast<std::size_t>(size), "Pretend GPU");
  return 0;
}

ONCHIP_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : 0;
  return attribute == 75 || attribute == 76 ? 0 : 1;
}

ONCHIP_EXPORT int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = std::size_t{141} << 30;
  return 0;
}
