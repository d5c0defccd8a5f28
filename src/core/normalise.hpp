// The first thing done to a caller's tensors.
#pragma once

#include "core/status.hpp"

namespace onchip {

/// Refuses ranks that Tensor cannot hold. An absent tensor becomes Tensor{}. Strides that mean nothing become harmless:
/// those of dimensions of size 1 as in a contiguous tensor, those of a tensor without elements, and all beyond the
/// rank, 0.
Status normalise(Attention& args);

}  // namespace onchip
