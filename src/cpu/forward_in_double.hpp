// The forward pass computed in double whatever the type of q, k and v: o and lse must be f64. The backward pass starts
// from it where logits are so large that an lse of 32 bits says too little.
#pragma once

#include <cstddef>
#include <span>

#include "core/problem.hpp"
#include "cpu/large_logits.hpp"

namespace onchip::cpu {

std::size_t forward_in_double_bytes(const Problem& problem);
void forward_in_double(const Problem& problem, const HeadSelection& selected, std::span<std::byte> workspace);

}  // namespace onchip::cpu
