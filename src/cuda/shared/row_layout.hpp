// Where rows of a tensor lie: strides in bytes.
#pragma once

#include <cstdint>

namespace onchip::cuda {

/// Where row `row` of head `head` of sequence `batch` lies (of page `batch` when paged). Strides are 0 where a
/// dimension is broadcast or, for batch, packed.
struct RowLayout {
  std::int64_t batch_bytes;
  std::int64_t row_bytes;
  std::int64_t head_bytes;

  constexpr std::int64_t offset(std::int64_t batch, std::int64_t row, std::int64_t head) const {
    return batch * batch_bytes + row * row_bytes + head * head_bytes;
  }
};

}  // namespace onchip::cuda
