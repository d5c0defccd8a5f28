// Control of the fake driver and compiler (fake_cuda.cpp), by symbols that the tests look up in the loaded library.
#pragma once

#include <cstdint>

namespace onchip::test {

struct FakeLaunch {
  char kernel[256];
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  const void* parameters;  // of the last launch's first parameter; valid during the call only
};

struct FakeState {
  // What the tests set.
  const char* failing_call = nullptr;  // this entry point fails with failure_code
  int failure_code = 0;
  int driver_version = 13000;
  int devices = 2;
  int capability = 90;
  int shared_bytes_per_block = 232448;
  const char* compile_log = "";

  // What the library did.
  int launches = 0;
  int compilations = 0;
  int modules_loaded = 0;
  int modules_unloaded = 0;
  int allocations = 0;    // not freed
  int context_depth = 0;  // pushed and not popped
  FakeLaunch last{};
};

using FakeStateFunction = FakeState*();  // extern "C" fake_cuda_state

}  // namespace onchip::test
