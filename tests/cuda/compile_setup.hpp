// Problems as the dispatcher turns them into kernels, and the check that a kernel compiles as it should.
#pragma once

#include <string>

#include "core/problem.hpp"
#include "cuda/host/jit.hpp"
#include "cuda/host/portable_plan.hpp"

namespace onchip::test {

constexpr cuda::PortableTarget kHopper{232448, 132};

/// A problem by what changes a kernel's code.
struct KernelCase {
  const char* name;
  DType type = DType::bf16, kv_type = DType::bf16;
  std::int64_t head_dim = 128, head_dim_v = 128;
  bool causal = true;
  bool tf32 = false, packed = false, paged = false, used = false;
  std::int64_t queries = 512;
  bool terms = false;  // softcap, bias, mask, ALiBi
  bool token_scales = false;
  const char* arch = "sm_90a";
};

Problem problem_of(const KernelCase& setup);

/// Compiles, and adds a failure for an error and for each complaint of the assembler. Skips where there is no NVRTC.
void expect_clean(const cuda::KernelRequest& request);
bool has_compiler();

}  // namespace onchip::test
