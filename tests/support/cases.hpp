// Hand-made cases for the tests of backends.
#pragma once

#include <cstdint>
#include <string>

#include "support/case.hpp"

namespace onchip::test {

struct Shape {
  std::int64_t batch = 1, seqlen_q = 1, seqlen_k = 1, heads = 1, kv_heads = 1, dim = 16, dim_v = 16;
};

/// Batched, row-major, normal inputs; o, lse and, where asked, dout and every gradient.
Case dense_case(DType type, const Shape& shape, std::uint64_t seed, bool gradients);

/// Both passes of a case (backward where it has gradients) on one backend, guarded. Returns what failed, or "".
std::string run_passes(Case& c, Backend backend);

/// The bytes of every result.
std::vector<std::vector<std::byte>> result_bytes(Case& c);

}  // namespace onchip::test
