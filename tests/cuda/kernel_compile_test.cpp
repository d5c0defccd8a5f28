// Compiles what the dispatcher chooses over the features, with the real compiler and no GPU: no spills, no stack
// frames. every_kernel_test.cpp goes through all of them.
#include <gtest/gtest.h>

#include "cuda/compile_setup.hpp"
#include "cuda/host/fwd_sm90_plan.hpp"

namespace onchip::test {
namespace {

class KernelCompile : public ::testing::TestWithParam<KernelCase> {};

TEST_P(KernelCompile, HasNoSpills) {
  if (!has_compiler()) GTEST_SKIP() << "no NVRTC";
  for (const cuda::KernelRequest& request : cuda::portable_requests(problem_of(GetParam()), kHopper, GetParam().arch))
    expect_clean(request);
}

/// Hopper's own kernel, where it accepts the problem.
class HopperKernelCompile : public KernelCompile {};

TEST_P(HopperKernelCompile, HasNoSpillsAndKeepsItsProductsApart) {
  if (!has_compiler()) GTEST_SKIP() << "no NVRTC";
  const Problem problem = problem_of(GetParam());
  const cuda::FwdSm90Config config = cuda::fwd_sm90_config(problem, kHopper.multiprocessors);
  EXPECT_LE(config.shared_bytes(), cuda::FwdSm90Config::kSharedBytes);
  expect_clean(cuda::fwd_sm90_request(config, cuda::kFwdSm90Arch));
}

constexpr DType kF32 = DType::f32, kF16 = DType::f16, kBF16 = DType::bf16, kI8 = DType::i8;

INSTANTIATE_TEST_SUITE_P(
    Features, KernelCompile,
    ::testing::Values(
        KernelCase{.name = "d64", .head_dim = 64, .head_dim_v = 64}, KernelCase{.name = "d128"},
        KernelCase{.name = "d128_dense", .causal = false},
        KernelCase{.name = "d256", .head_dim = 256, .head_dim_v = 256},
        KernelCase{.name = "d576_dv512", .head_dim = 576, .head_dim_v = 512},
        KernelCase{.name = "f16_d96", .type = kF16, .kv_type = kF16, .head_dim = 96, .head_dim_v = 96},
        KernelCase{.name = "d33_dv7", .head_dim = 33, .head_dim_v = 7}, KernelCase{.name = "few_rows", .queries = 1},
        KernelCase{.name = "packed", .packed = true}, KernelCase{.name = "packed_paged", .packed = true, .paged = true},
        KernelCase{.name = "d64_paged", .head_dim = 64, .head_dim_v = 64, .paged = true},
        KernelCase{.name = "terms_d64", .head_dim = 64, .head_dim_v = 64, .terms = true},
        KernelCase{.name = "terms_d128", .terms = true},
        KernelCase{.name = "terms_d256", .head_dim = 256, .head_dim_v = 256, .terms = true},
        KernelCase{.name = "i8", .kv_type = kI8},
        KernelCase{.name = "i8_tokens_paged_terms", .kv_type = kI8, .paged = true, .terms = true, .token_scales = true},
        KernelCase{.name = "f32_d64", .type = kF32, .kv_type = kF32, .head_dim = 64, .head_dim_v = 64},
        KernelCase{.name = "f32_d128", .type = kF32, .kv_type = kF32},
        KernelCase{.name = "f32_d256", .type = kF32, .kv_type = kF32, .head_dim = 256, .head_dim_v = 256},
        KernelCase{.name = "f32_terms", .type = kF32, .kv_type = kF32, .terms = true},
        KernelCase{.name = "tf32_d64", .type = kF32, .kv_type = kF32, .head_dim = 64, .head_dim_v = 64, .tf32 = true},
        KernelCase{.name = "tf32_d128", .type = kF32, .kv_type = kF32, .tf32 = true},
        KernelCase{.name = "e4m3", .type = DType::e4m3, .kv_type = DType::e4m3},
        KernelCase{.name = "f16_e5m2", .type = kF16, .kv_type = DType::e5m2},
        KernelCase{.name = "sm_100a", .arch = "sm_100a"}, KernelCase{.name = "sm_120a", .arch = "sm_120a"}),
    [](const auto& setup) { return std::string(setup.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Features, HopperKernelCompile,
    ::testing::Values(KernelCase{.name = "d64", .head_dim = 64, .head_dim_v = 64},
                      KernelCase{.name = "d64_long", .head_dim = 64, .head_dim_v = 64, .queries = 8192},
                      KernelCase{.name = "d128"}, KernelCase{.name = "d128_dense", .causal = false},
                      KernelCase{.name = "d128_f16", .type = kF16, .kv_type = kF16},
                      KernelCase{.name = "d192_dv128", .head_dim = 192},
                      KernelCase{.name = "d192", .head_dim = 192, .head_dim_v = 192},
                      KernelCase{.name = "d256", .head_dim = 256, .head_dim_v = 256},
                      KernelCase{.name = "d72_dv40", .head_dim = 72, .head_dim_v = 40},
                      KernelCase{.name = "packed_used", .packed = true, .used = true},
                      KernelCase{.name = "terms", .terms = true},
                      KernelCase{.name = "terms_d64", .head_dim = 64, .head_dim_v = 64, .terms = true}),
    [](const auto& setup) { return std::string(setup.param.name); });

}  // namespace
}  // namespace onchip::test
