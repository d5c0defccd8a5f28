// Tests against the fake driver and compiler. Each runs in a process of its own (CTest), since the library opens both
// once.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cuda/fake_cuda.hpp"
#include "tools/temporary_folder.hpp"

namespace onchip::test {

class FakeCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("ONCHIP_CUDA_DRIVER", ONCHIP_FAKE_CUDA, 1);
    setenv("ONCHIP_NVRTC", ONCHIP_FAKE_CUDA, 1);
    setenv("ONCHIP_CACHE", folder_.root().c_str(), 1);
    unsetenv("ONCHIP_KERNELS");
    void* library = dlopen(ONCHIP_FAKE_CUDA, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    fake = reinterpret_cast<FakeStateFunction*>(dlsym(library, "fake_cuda_state"))();
    *fake = {};
  }

  FakeState* fake = nullptr;
  TemporaryFolder folder_;
};

}  // namespace onchip::test
