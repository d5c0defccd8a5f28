// One row of probabilities and score gradients computed in double: what heads with large logits need
// (cpu/large_logits.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/problem.hpp"
#include "core/workspace.hpp"
#include "cpu/large_logits.hpp"
#include "cpu/row_kernels.hpp"
#include "cpu/score_row.hpp"

namespace onchip::cpu {

class RowInDouble {
 public:
  RowInDouble(const Problem& problem, WorkspaceCursor& cursor, int threads)
      : problem_(problem),
        stride_(padded<double>(problem.max_seqlen_k)),
        score_rows_(problem, cursor, threads),
        scratch_(cursor.take<double>(static_cast<std::size_t>(kRows * stride_ * threads))) {}

  struct Operands {
    const float* row;   // a query's row of q or dout
    const float* keys;  // matrix of k or v of the sequence and head
    std::int64_t stride, columns;
  };

  /// Writes P of keys [0, seqlen_k); returns lse.
  double probabilities(const Sequence& s, std::int64_t head, std::int64_t i, int thread, const Operands& qk,
                       float* p) const {
    double* products = scratch_ + kRows * stride_ * thread;
    multiply(qk, s.seqlen_k, products);
    const double lse = softmax(s, head, i, thread, products).lse;
    for (std::int64_t j = 0; j < s.seqlen_k; ++j) p[j] = static_cast<float>(products[j]);
    return lse;
  }

  /// What a row's gradients are made of. The arrays are scratch of the thread.
  struct Differentiated {
    double lse, delta;
    const double *p, *ds, *dbias;  // [seqlen_k]
  };

  /// `lse` and `delta` are the caller's: they stand where they are not of these keys alone.
  Differentiated differentiate(const Sequence& s, std::int64_t head, std::int64_t i, int thread, const Operands& qk,
                               const Operands& dout_v, double lse, double delta) const {
    const std::int64_t n = s.seqlen_k;
    double* products = scratch_ + kRows * stride_ * thread;
    double* gradients = products + stride_;
    double* probabilities = gradients + stride_;
    multiply(qk, n, products);
    multiply(dout_v, n, gradients);
    std::copy_n(products, n, probabilities);
    RowSoftmax<double> row = softmax(s, head, i, thread, probabilities);
    if (!is_own_lse(lse, row.lse)) {
      row = {lse, lse, 1};
    } else {
      delta = 0;
      for (std::int64_t j = 0; j < n; ++j)
        if (probabilities[j] != 0) delta += probabilities[j] * gradients[j];
    }
    double* dbias = probabilities;
    std::fill_n(dbias, stride_, 0.0);
    row_kernels<double>().softmax_backward(score_rows_.make(s, head, i, thread), row, delta, n, products, gradients,
                                           dbias);
    return {row.lse, delta, products, gradients, dbias};
  }

 private:
  static constexpr std::int64_t kRows = 3;

  /// products[j] = row·keys[j]
  static void multiply(const Operands& operands, std::int64_t n, double* products) {
    for (std::int64_t j = 0; j < n; ++j) {
      const float* key = operands.keys + j * operands.stride;
      products[j] = 0;
      for (std::int64_t c = 0; c < operands.columns; ++c)
        products[j] += static_cast<double>(operands.row[c]) * static_cast<double>(key[c]);
    }
  }

  /// Products become probabilities.
  RowSoftmax<double> softmax(const Sequence& s, std::int64_t head, std::int64_t i, int thread, double* products) const {
    const double sink = problem_.args.sink.present() ? static_cast<double>(sink_logit(problem_, head))
                                                     : -std::numeric_limits<double>::infinity();
    return row_kernels<double>().softmax(score_rows_.make(s, head, i, thread), sink, s.seqlen_k, products);
  }

  const Problem& problem_;
  std::int64_t stride_;
  ScoreRowMaker<double> score_rows_;
  double* scratch_;
};

}  // namespace onchip::cpu
