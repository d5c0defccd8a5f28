// Products that keep NaN and infinities where they belong: 0·NaN is NaN, so where a factor is not finite a matrix
// product would carry it into rows that never see it. Here pairs that are hidden contribute nothing at all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cpu/row_kernels.hpp"
#include "cpu/score_row.hpp"

namespace onchip::cpu {

/// Which weights of one head count, in whole rows that are not empty and by pair.
template <typename T>
struct CountedPairs {
  const Visibility& visible;
  const Sequence& sequence;
  std::int64_t head;
  const T* lse;  // of each query; null going forward. −∞: the row has no key left

  bool operator()(std::int64_t i, std::int64_t j) const {
    return (lse == nullptr || lse[i] != -std::numeric_limits<T>::infinity()) && visible(sequence, head, i, j);
  }
};

/// result[i − begin] = Σ_j weights[i][j]·values[j] over counted pairs, for queries begin…end−1.
template <typename T>
void sum_over_keys(const CountedPairs<T>& counted, std::int64_t begin, std::int64_t end, const T* weights,
                   std::int64_t weight_stride, const T* values, std::int64_t value_stride, std::int64_t columns,
                   T* result) {
  for (std::int64_t i = begin; i < end; ++i) {
    T* row = result + (i - begin) * value_stride;
    std::fill_n(row, columns, T{0});
    for (std::int64_t j = 0; j < counted.sequence.seqlen_k; ++j)
      if (counted(i, j))
        for (std::int64_t c = 0; c < columns; ++c)
          row[c] += weights[i * weight_stride + j] * values[j * value_stride + c];
  }
}

/// result[j − begin] += Σ_i weights[i][j]·values[i] over counted pairs, for keys begin…end−1.
template <typename T>
void add_over_queries(const CountedPairs<T>& counted, std::int64_t begin, std::int64_t end, const T* weights,
                      std::int64_t weight_stride, const T* values, std::int64_t value_stride, std::int64_t columns,
                      T* result) {
  for (std::int64_t i = 0; i < counted.sequence.seqlen_q; ++i)
    for (std::int64_t j = begin; j < end; ++j)
      if (counted(i, j))
        for (std::int64_t c = 0; c < columns; ++c)
          result[(j - begin) * value_stride + c] += weights[i * weight_stride + j] * values[i * value_stride + c];
}

}  // namespace onchip::cpu
