// Products that keep NaN and infinities where they belong: 0·NaN is NaN, so where a factor is not finite a matrix
// product would carry it into rows that never see it. Here pairs that are hidden contribute nothing at all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cpu/row_kernels.hpp"
#include "cpu/score_row.hpp"

namespace onchip::cpu {

/// sum += weight·row
template <typename Weight, typename T, typename Sum>
void add_product(Weight weight, const T* row, std::int64_t columns, Sum* sum) {
  for (std::int64_t c = 0; c < columns; ++c) sum[c] += static_cast<Sum>(weight) * static_cast<Sum>(row[c]);
}

/// Which weights of one head count, in whole rows that are not empty and by pair.
struct CountedPairs {
  const Visibility& visible;
  const Sequence& sequence;
  std::int64_t head;
  const double* lse;  // of each query; null going forward. −∞: the row has no key left

  bool operator()(std::int64_t i, std::int64_t j) const {
    return (lse == nullptr || lse[i] != -std::numeric_limits<double>::infinity()) && visible(sequence, head, i, j);
  }
};

/// result[i − begin] = Σ_j weights[i][j]·values[j] over counted pairs, for queries begin…end−1. Sums are of type Sum:
/// double where logits are too large for float. `sum` is a row of scratch.
template <typename T, typename Weight, typename Sum>
void sum_over_keys(const CountedPairs& counted, std::int64_t begin, std::int64_t end, const Weight* weights,
                   std::int64_t weight_stride, const T* values, std::int64_t value_stride, std::int64_t columns,
                   Sum* sum, T* result) {
  for (std::int64_t i = begin; i < end; ++i) {
    std::fill_n(sum, columns, Sum{0});
    for (std::int64_t j = 0; j < counted.sequence.seqlen_k; ++j)
      if (counted(i, j)) add_product(weights[i * weight_stride + j], values + j * value_stride, columns, sum);
    std::copy_n(sum, columns, result + (i - begin) * value_stride);
  }
}

/// sum += Σ_i weights[i][j]·values[i] over counted pairs, for one key.
template <typename T, typename Sum>
void add_over_queries(const CountedPairs& counted, std::int64_t j, const T* weights, std::int64_t weight_stride,
                      const T* values, std::int64_t value_stride, std::int64_t columns, Sum* sum) {
  for (std::int64_t i = 0; i < counted.sequence.seqlen_q; ++i)
    if (counted(i, j)) add_product(weights[i * weight_stride + j], values + i * value_stride, columns, sum);
}

}  // namespace onchip::cpu
