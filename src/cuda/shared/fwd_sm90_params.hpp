// Parameters of one launch of the Hopper forward kernel.
#pragma once

#include <cstdint>

#include "cuda/shared/portable_params.hpp"
#include "cuda/shared/tensor_map.hpp"

namespace onchip::cuda {

struct FwdSm90Params {
  TensorMap q_map, k_map, v_map;  // boxes of 64 columns and as many rows as a warpgroup or a tile has
  PortableParams attention;
  // 1, or 0 where the tensor is broadcast or has no such dimension: what a coordinate is multiplied by.
  std::int32_t q_batch, k_batch, v_batch, q_head, k_head, v_head;
  std::int32_t num_tiles;
  std::int32_t* next_tile;  // tiles given out so far beyond the first of each CTA; null: tile i is for CTA i mod grid
};

}  // namespace onchip::cuda
