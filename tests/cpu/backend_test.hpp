// Tests that run on each backend by name and say which of them is missing.
#pragma once

#include <gtest/gtest.h>

#include "cuda/gpu.hpp"
#include "support/cases.hpp"
#include "support/run.hpp"

namespace onchip::test {

class BackendTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    ONCHIP_SKIP_WITHOUT(GetParam(), Pass::forward);
    if (GetParam() == Backend::cuda) ONCHIP_SKIP_WITHOUT_GPU();
    has_backward_ = has_backend(GetParam(), Pass::backward);
  }
  bool has_backward() const { return has_backward_; }
  /// f64 is computed on the CPU alone.
  static bool computes(DType type) { return GetParam() != Backend::cuda || type != DType::f64; }

 private:
  bool has_backward_ = false;
};

}  // namespace onchip::test

#if defined(ONCHIP_TEST_GPU)
#define ONCHIP_BACKENDS ::onchip::Backend::cuda
#else
#define ONCHIP_BACKENDS ::onchip::Backend::cpu, ::onchip::Backend::standard
#endif

#define ONCHIP_FOR_EACH_BACKEND(suite)                                         \
  INSTANTIATE_TEST_SUITE_P(Backend, suite, ::testing::Values(ONCHIP_BACKENDS), \
                           [](const auto& parameter) { return ::onchip::test::backend_name(parameter.param); })
