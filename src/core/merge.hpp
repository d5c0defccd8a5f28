// Merging partial results over disjoint sets of keys (core/softmax_state.hpp has the algebra).
#pragma once

#include <span>

#include "core/status.hpp"

namespace onchip {

/// `device` −1: host memory; else the tensors are on it, and the merge is queued on `stream`.
Status merge_parts(std::span<const Tensor> o_parts, std::span<const Tensor> lse_parts, const Tensor& o,
                   const Tensor& lse, int device, void* stream);

}  // namespace onchip
