// Tests that run on each backend by name and say which of them is missing.
#pragma once

#include <gtest/gtest.h>

#include "support/cases.hpp"
#include "support/run.hpp"

namespace onchip::test {

class BackendTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    ONCHIP_SKIP_WITHOUT(GetParam(), Pass::forward);
    has_backward_ = has_backend(GetParam(), Pass::backward);
  }
  bool has_backward() const { return has_backward_; }

 private:
  bool has_backward_ = false;
};

}  // namespace onchip::test

#define ONCHIP_FOR_EACH_BACKEND(suite)                                                                             \
  INSTANTIATE_TEST_SUITE_P(Backend, suite, ::testing::Values(::onchip::Backend::cpu, ::onchip::Backend::standard), \
                           [](const auto& parameter) { return ::onchip::test::backend_name(parameter.param); })
