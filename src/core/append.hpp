// The rows that a step of generation writes before it attends: rotated queries, and new keys and values in the cache.
#pragma once

#include <cstddef>

#include "core/decode.hpp"

namespace onchip {

/// Scratch that rotate_queries() and append() need, in bytes.
std::size_t append_scratch_bytes(const DecodeProblem& problem);

/// rotated = q, each query turned by the angle of its position among the keys.
void rotate_queries(const DecodeProblem& problem, const Tensor& rotated, std::byte* scratch);

/// Writes k_new, turned, and v_new behind the keys and values that exist, quantised as the cache is.
void append(const DecodeProblem& problem, std::byte* scratch);

}  // namespace onchip
