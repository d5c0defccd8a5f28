#include "cuda/compile_setup.hpp"

#include <gtest/gtest.h>

#include "cuda/host/nvrtc.hpp"

namespace onchip::test {
namespace {

Attention problem(const KernelCase& s) {
  Attention a;
  const std::int64_t seqlen = 512;
  const auto rows = [&](DType type, std::int64_t length, std::int64_t heads, std::int64_t columns) {
    return s.packed ? contiguous(static_cast<void*>(nullptr), type, {2 * length, heads, columns})
                    : contiguous(static_cast<void*>(nullptr), type, {2, length, heads, columns});
  };
  const auto keys = [&](std::int64_t columns) {
    return s.paged ? contiguous(static_cast<void*>(nullptr), s.kv_type, {64, 16, 2, columns})
                   : rows(s.kv_type, seqlen, 2, columns);
  };
  a.q = rows(s.type, s.queries, 8, s.head_dim);
  a.k = keys(s.head_dim);
  a.v = keys(s.head_dim_v);
  a.o = rows(s.type == DType::e4m3 ? DType::bf16 : s.type, s.queries, 8, s.head_dim_v);
  a.max_seqlen_q = s.queries;
  if (s.packed) {
    a.cu_seqlens_q = contiguous(static_cast<void*>(nullptr), DType::i32, {3});
    if (!s.paged) a.cu_seqlens_k = a.cu_seqlens_q;
  }
  if (s.used || s.paged) a.seqused_k = contiguous(static_cast<void*>(nullptr), DType::i32, {2});
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
    const std::int64_t longest_k = s.packed && !s.paged ? 2 * seqlen : seqlen;
    a.max_seqlen_k = longest_k;
    a.bias = contiguous(static_cast<void*>(nullptr), DType::bf16, {1, 8, s.queries, longest_k});
    a.mask = contiguous(static_cast<void*>(nullptr), DType::boolean, {1, 8, s.queries, longest_k});
    a.alibi_slopes = contiguous(static_cast<void*>(nullptr), DType::f32, {8});
  }
  a.causal = s.causal;
  a.allow_tf32 = s.tf32;
  a.device = 0;
  return a;
}

}  // namespace

Problem problem_of(const KernelCase& setup) {
  Problem p;
  const Status valid = make_problem(problem(setup), Pass::forward, Use::plan, p);
  EXPECT_TRUE(valid.ok()) << valid.message();
  return p;
}

bool has_compiler() { return cuda::nvrtc_in_use().status.ok(); }

void expect_clean(const cuda::KernelRequest& request) {
  cuda::Compilation compilation;
  const Status status = cuda::compile_kernel(cuda::nvrtc_in_use().nvrtc, request, compilation);
  ASSERT_TRUE(status.ok()) << status.message();
  for (const std::string& line : cuda::complaints(compilation.log)) ADD_FAILURE() << request.name << ": " << line;
}

}  // namespace onchip::test
