#include "cuda/gpu.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

#include "cuda/host/driver.hpp"
#include "cuda/host/gpu.hpp"

namespace onchip::test {
namespace {

const cuda::Gpu* first_gpu() {
  const cuda::DriverInUse& opened = cuda::driver_in_use();
  const cuda::Gpu* gpu = nullptr;
  if (!opened.status.ok() || !cuda::find_gpu(opened.driver, 0, gpu).ok()) return nullptr;
  return gpu;
}

}  // namespace

const TestDriver* test_driver() {
  static const TestDriver* const driver = []() -> const TestDriver* {
    if (first_gpu() == nullptr) return nullptr;
    static TestDriver entries;
    static_cast<cuda::Driver&>(entries) = cuda::driver_in_use().driver;
    void* library = dlopen(cuda::driver_in_use().driver.path.c_str(), RTLD_NOW);
#define ONCHIP_ENTRY(name, ...)                                                   \
  entries.name = reinterpret_cast<decltype(entries.name)>(dlsym(library, #name)); \
  if (entries.name == nullptr) throw std::runtime_error(std::string("no entry ") + #name);
    ONCHIP_TEST_DRIVER_ENTRIES(ONCHIP_ENTRY)
#undef ONCHIP_ENTRY
    return &entries;
  }();
  return driver;
}

void check(cuda::DriverResult result, const char* what) {
  const Status status = cuda::driver_in_use().driver.check(result, what);
  if (!status.ok()) throw std::runtime_error(status.message());
}

bool has_hopper() {
  const cuda::Gpu* gpu = nullptr;
  return test_driver() != nullptr && cuda::find_gpu(*test_driver(), 0, gpu).ok() && gpu->capability == 90;
}

void use_gpu() { check(test_driver()->cuCtxSetCurrent(first_gpu()->context), "cuCtxSetCurrent"); }

TestStream::TestStream() { check(test_driver()->cuStreamCreate(&stream_, 1), "cuStreamCreate"); }
TestStream::~TestStream() { test_driver()->cuStreamDestroy_v2(stream_); }
void TestStream::wait() const { check(test_driver()->cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

}  // namespace onchip::test
