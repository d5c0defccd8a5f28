// The tiled forward kernel: one block of query rows against all the keys it sees. Compiled once for each SIMD target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/large_logits.hpp"
#include "cpu/query_block.hpp"

namespace onchip::cpu {

/// What the kernel of the active SIMD target is made of, for elements of T.
struct KernelShape {
  std::int64_t vector_lanes;  // query rows in one vector
  std::int64_t panel_lanes;   // query rows that go through a tile together
};

template <typename T>
KernelShape forward_shape();

/// Scratch of one thread.
template <typename T>
std::size_t forward_scratch_bytes(const Problem& problem, const TileConfig& tile);

/// Writes o, and lse where present, of the block's rows, and shows every lse to `large`. `scratch` has
/// forward_scratch_bytes() bytes.
template <typename T>
void forward_block(const Problem& problem, const TileConfig& tile, const QueryBlock& block, const LargeLogits& large,
                   std::byte* scratch);

}  // namespace onchip::cpu
