// Compiles what the dispatcher chooses over the features, with the real compiler and no GPU: no spills, no stack
// frames.
#include <gtest/gtest.h>

#include "core/problem.hpp"
#include "cuda/host/nvrtc.hpp"
#include "cuda/host/portable_plan.hpp"

namespace onchip::test {
namespace {

constexpr int kHopperSharedBytes = 232448;

struct Setup {
  const char* name;
  DType type = DType::bf16, kv_type = DType::bf16;
  std::int64_t head_dim = 128, head_dim_v = 128;
  bool causal = true;
  bool tf32 = false, packed = false, paged = false, few_rows = false;
  bool terms = false;  // softcap, bias, mask, ALiBi
  bool token_scales = false;
  const char* arch = "sm_90a";
};

Attention problem(const Setup& s) {
  Attention a;
  const std::int64_t seqlen = s.few_rows ? 1 : 512;
  const auto rows = [&](DType type, std::int64_t heads, std::int64_t columns) {
    return s.packed ? contiguous(static_cast<void*>(nullptr), type, {1024, heads, columns})
                    : contiguous(static_cast<void*>(nullptr), type, {2, seqlen, heads, columns});
  };
  const auto keys = [&](std::int64_t columns) {
    return s.paged ? contiguous(static_cast<void*>(nullptr), s.kv_type, {64, 16, 2, columns})
                   : rows(s.kv_type, 2, columns);
  };
  a.q = rows(s.type, 8, s.head_dim);
  a.k = keys(s.head_dim);
  a.v = keys(s.head_dim_v);
  a.o = rows(s.type == DType::e4m3 ? DType::bf16 : s.type, 8, s.head_dim_v);
  if (s.packed) {
    a.cu_seqlens_q = contiguous(static_cast<void*>(nullptr), DType::i32, {3});
    if (!s.paged) a.cu_seqlens_k = a.cu_seqlens_q;
  }
  if (s.paged) a.page_table = contiguous(static_cast<void*>(nullptr), DType::i32, {2, 32});
  if (s.kv_type != s.type) {
    a.k_scale = a.v_scale = contiguous(static_cast<void*>(nullptr), DType::f32, {1});
    if (s.token_scales) {
      a.k_scale = a.v_scale = a.k;
      a.k_scale.dtype = a.v_scale.dtype = DType::f32;
      a.k_scale.rank = a.v_scale.rank = a.k.rank - 1;
    }
  }
  if (s.terms) {
    a.softcap = 20;
    a.bias = contiguous(static_cast<void*>(nullptr), DType::bf16, {1, 8, 1024, 1024});
    a.mask = contiguous(static_cast<void*>(nullptr), DType::boolean, {1, 8, 1024, 1024});
    if (!s.packed) a.bias.shape[2] = a.mask.shape[2] = seqlen;
    if (!s.packed && !s.paged) a.bias.shape[3] = a.mask.shape[3] = seqlen;
    a.alibi_slopes = contiguous(static_cast<void*>(nullptr), DType::f32, {8});
  }
  a.causal = s.causal;
  a.allow_tf32 = s.tf32;
  a.device = 0;
  return a;
}

class KernelCompile : public ::testing::TestWithParam<Setup> {};

TEST_P(KernelCompile, HasNoSpills) {
  const cuda::NvrtcInUse& compiler = cuda::nvrtc_in_use();
  if (!compiler.status.ok()) GTEST_SKIP() << compiler.status.message();
  Problem p;
  const Status valid = make_problem(problem(GetParam()), Pass::forward, Use::plan, p);
  ASSERT_TRUE(valid.ok()) << valid.message();
  const cuda::PortableConfig config = cuda::portable_config(p, {kHopperSharedBytes});
  EXPECT_LE(config.shared_bytes(), kHopperSharedBytes);
  cuda::Compilation compilation;
  const Status status =
      cuda::compile_kernel(compiler.nvrtc, cuda::portable_request(config, GetParam().arch), compilation);
  ASSERT_TRUE(status.ok()) << status.message();
  for (const std::string& line : cuda::complaints(compilation.log))
    ADD_FAILURE() << cuda::portable_name(config) << ": " << line;
}

constexpr DType kF32 = DType::f32, kF16 = DType::f16, kBF16 = DType::bf16, kI8 = DType::i8;

INSTANTIATE_TEST_SUITE_P(
    Features, KernelCompile,
    ::testing::Values(
        Setup{.name = "d64", .head_dim = 64, .head_dim_v = 64}, Setup{.name = "d128"},
        Setup{.name = "d128_dense", .causal = false}, Setup{.name = "d256", .head_dim = 256, .head_dim_v = 256},
        Setup{.name = "d576_dv512", .head_dim = 576, .head_dim_v = 512},
        Setup{.name = "f16_d96", .type = kF16, .kv_type = kF16, .head_dim = 96, .head_dim_v = 96},
        Setup{.name = "d33_dv7", .head_dim = 33, .head_dim_v = 7}, Setup{.name = "few_rows", .few_rows = true},
        Setup{.name = "packed", .packed = true}, Setup{.name = "packed_paged", .packed = true, .paged = true},
        Setup{.name = "d64_paged", .head_dim = 64, .head_dim_v = 64, .paged = true},
        Setup{.name = "terms_d64", .head_dim = 64, .head_dim_v = 64, .terms = true},
        Setup{.name = "terms_d128", .terms = true},
        Setup{.name = "terms_d256", .head_dim = 256, .head_dim_v = 256, .terms = true},
        Setup{.name = "i8", .kv_type = kI8},
        Setup{.name = "i8_tokens_paged_terms", .kv_type = kI8, .paged = true, .terms = true, .token_scales = true},
        Setup{.name = "f32_d64", .type = kF32, .kv_type = kF32, .head_dim = 64, .head_dim_v = 64},
        Setup{.name = "f32_d128", .type = kF32, .kv_type = kF32},
        Setup{.name = "f32_d256", .type = kF32, .kv_type = kF32, .head_dim = 256, .head_dim_v = 256},
        Setup{.name = "f32_terms", .type = kF32, .kv_type = kF32, .terms = true},
        Setup{.name = "tf32_d64", .type = kF32, .kv_type = kF32, .head_dim = 64, .head_dim_v = 64, .tf32 = true},
        Setup{.name = "tf32_d128", .type = kF32, .kv_type = kF32, .tf32 = true},
        Setup{.name = "e4m3", .type = DType::e4m3, .kv_type = DType::e4m3},
        Setup{.name = "f16_e5m2", .type = kF16, .kv_type = DType::e5m2}, Setup{.name = "sm_100a", .arch = "sm_100a"},
        Setup{.name = "sm_120a", .arch = "sm_120a"}),
    [](const auto& setup) { return std::string(setup.param.name); });

}  // namespace
}  // namespace onchip::test
