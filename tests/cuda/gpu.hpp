// A GPU for tests: streams and graphs, through the driver that the library uses.
#pragma once

#include <cstddef>

#include "cuda/host/driver.hpp"

namespace onchip::test {

using cuda::DevicePointer;
using Event = struct EventHandle*;
using Graph = struct GraphHandle*;
using GraphExec = struct GraphExecHandle*;

// Entry points that the tests use and the library does not.
#define ONCHIP_TEST_DRIVER_ENTRIES(X)                                                    \
  X(cuCtxSetCurrent, cuda::Context context)                                              \
  X(cuMemsetD8_v2, DevicePointer to, unsigned char value, std::size_t bytes)             \
  X(cuStreamCreate, cuda::Stream* stream, unsigned flags)                                \
  X(cuStreamDestroy_v2, cuda::Stream stream)                                             \
  X(cuStreamSynchronize, cuda::Stream stream)                                            \
  X(cuStreamBeginCapture_v2, cuda::Stream stream, int mode)                              \
  X(cuStreamEndCapture, cuda::Stream stream, Graph* graph)                               \
  X(cuGraphInstantiateWithFlags, GraphExec* exec, Graph graph, unsigned long long flags) \
  X(cuGraphLaunch, GraphExec exec, cuda::Stream stream)                                  \
  X(cuGraphExecDestroy, GraphExec exec)                                                  \
  X(cuGraphDestroy, Graph graph)

/// The library's entry points and those.
struct TestDriver : cuda::Driver {
#define ONCHIP_ENTRY(name, ...) cuda::DriverResult (*name)(__VA_ARGS__) = nullptr;
  ONCHIP_TEST_DRIVER_ENTRIES(ONCHIP_ENTRY)
#undef ONCHIP_ENTRY
};

/// Null where the machine has no GPU that the library works with.
const TestDriver* test_driver();

/// Whether device 0 is of compute capability 9.0.
bool has_hopper();

/// Makes device 0 current for the calling thread.
void use_gpu();

/// Throws std::runtime_error unless a driver call succeeded.
void check(cuda::DriverResult result, const char* what);

class TestStream {
 public:
  TestStream();
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  ~TestStream();
  cuda::Stream get() const { return stream_; }
  void wait() const;

 private:
  cuda::Stream stream_ = nullptr;
};

}  // namespace onchip::test

/// Skips the running test, by name, where there is no GPU.
#define ONCHIP_SKIP_WITHOUT_GPU() \
  if (::onchip::test::test_driver() == nullptr) GTEST_SKIP() << "no GPU that the library works with"

/// The same where it is of another generation.
#define ONCHIP_SKIP_WITHOUT_HOPPER() \
  if (!::onchip::test::has_hopper()) GTEST_SKIP() << "no GPU of compute capability 9.0"
