// The parts of the backward pass that are sums over single rows: delta = rowsum(dout ∘ o), and dsink.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/problem.hpp"
#include "core/threads.hpp"
#include "core/views.hpp"
#include "cpu/row_kernels.hpp"
#include "cpu/score_row.hpp"

namespace onchip::cpu {

/// Where an lse is beyond this, f32 logits and lse leave gradients of f32 inputs with fewer digits than they are held
/// to, and double is called for.
inline constexpr double kLargestLseOfFloat = 64;

/// dsink[h] = −Σ exp(sink − lse)·delta over the rows of all sequences, in order. `statistics(sequence, head, i)` gives
/// {lse, delta}. Rows without a key have o = 0 and so delta = 0, whatever dout holds.
template <typename Statistics>
void write_sink_gradient(const Problem& problem, int threads, const Statistics& statistics) {
  const Tensor& gradient = problem.args.dsink;
  if (!gradient.present()) return;
  const Visibility visible(problem);
  parallel_tasks(problem.num_heads_q, threads, [&](std::int64_t head, int) {
    const double sink = sink_logit(problem, head);
    double sum = 0;
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      const Sequence s = problem.sequence(b);
      for (std::int64_t i = 0; i < s.seqlen_q; ++i) {
        const auto [lse, delta] = statistics(s, head, i);
        const bool counts = delta != 0 && lse != -std::numeric_limits<double>::infinity() &&
                            (std::isfinite(delta) || visible.any(s, head, i));
        if (counts) sum -= std::exp(sink - lse) * delta;
      }
    }
    static_cast<float*>(gradient.data)[head * gradient.stride[0]] = static_cast<float>(sum);
  });
}

}  // namespace onchip::cpu
