// One row of probabilities and score gradients computed in double from f32 inputs. Heads with large logits need it: f32
// logits and lse would leave their gradients with fewer digits than f32 results are held to.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/problem.hpp"
#include "core/workspace.hpp"
#include "cpu/row_gradients.hpp"
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

  /// Whether a head that has a row with this lse needs it.
  static bool is_needed(const Problem& problem, double lse) {
    return problem.dtype() == DType::f32 && std::isfinite(lse) && std::abs(lse) > kLargestLseOfFloat;
  }

  struct Operands {
    const float *q, *dout;  // the query's rows
    const float *k, *v;     // matrices of the sequence and head
    std::int64_t k_stride, v_stride;
  };

  /// Writes P and dS of keys [0, seqlen_k) and adds to dbias, unless that is null.
  void compute(const Sequence& s, std::int64_t head, std::int64_t i, int thread, const Operands& from, float* p,
               float* ds, float* dbias) const {
    const RowKernels<double>& kernels = row_kernels<double>();
    const std::int64_t n = s.seqlen_k;
    double* products = scratch_ + kRows * stride_ * thread;
    double* gradients = products + stride_;
    double* probabilities = gradients + stride_;
    for (std::int64_t j = 0; j < n; ++j) {
      probabilities[j] = products[j] = dot(from.q, from.k + j * from.k_stride, problem_.head_dim);
      gradients[j] = dot(from.dout, from.v + j * from.v_stride, problem_.head_dim_v);
    }
    const ScoreRow<double> row = score_rows_.make(s, head, i, thread);
    const double sink = problem_.args.sink.present() ? static_cast<double>(sink_logit(problem_, head))
                                                     : -std::numeric_limits<double>::infinity();
    const double lse = kernels.softmax(row, sink, n, probabilities);
    double delta = 0;
    for (std::int64_t j = 0; j < n; ++j)
      if (probabilities[j] != 0) delta += probabilities[j] * gradients[j];
    double* bias_gradients = probabilities;
    for (std::int64_t j = 0; j < stride_; ++j) bias_gradients[j] = 0;
    kernels.softmax_backward(row, lse, delta, n, products, gradients, bias_gradients);
    for (std::int64_t j = 0; j < n; ++j) {
      p[j] = static_cast<float>(products[j]);
      ds[j] = static_cast<float>(gradients[j]);
      if (dbias) dbias[j] += static_cast<float>(bias_gradients[j]);
    }
  }

 private:
  static constexpr std::int64_t kRows = 3;

  static double dot(const float* a, const float* b, std::int64_t n) {
    double sum = 0;
    for (std::int64_t c = 0; c < n; ++c) sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
    return sum;
  }

  const Problem& problem_;
  std::int64_t stride_;
  ScoreRowMaker<double> score_rows_;
  double* scratch_;
};

}  // namespace onchip::cpu
