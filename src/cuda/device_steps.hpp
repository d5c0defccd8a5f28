// What core's decode and merge ask of a GPU: kernels queued on a stream, besides the attention itself.
#pragma once

#include <cstdint>
#include <span>

#include "core/decode.hpp"

namespace onchip::cuda {

/// As core/append.hpp, for tensors in device memory: `rotated` = q turned (where the step turns), new keys and values
/// into the cache, and the lengths with them into `lengths` (where the step appends).
Status queue_append(const DecodeProblem& problem, const Tensor& rotated, std::int32_t* lengths);

/// As core/merge.hpp, checked already.
Status queue_merge(std::span<const Tensor> o_parts, std::span<const Tensor> lse_parts, const Tensor& o,
                   const Tensor& lse, int device, void* stream);

}  // namespace onchip::cuda
