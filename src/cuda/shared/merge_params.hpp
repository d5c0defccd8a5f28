// Parameters of the kernel that merges a caller's partial results.
#pragma once

#include <cstdint>

#include "cuda/shared/element.hpp"
#include "cuda/shared/row_layout.hpp"

namespace onchip::cuda {

constexpr int kMaxMergeParts = 32;  // as many as kernel parameters hold

/// o and lse of one part, or of the result; lse may be null there.
struct MergePart {
  char* o;
  char* lse;
  RowLayout o_layout, lse_layout;
  Element o_type;
};

struct MergeParams {
  MergePart parts[kMaxMergeParts];
  MergePart result;
  std::int64_t rows;  // batch · positions · heads
  std::int64_t positions;
  std::int32_t heads;
  std::int32_t num_parts;
  std::int32_t head_dim;
};

}  // namespace onchip::cuda
