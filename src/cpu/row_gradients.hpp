// The parts of the backward pass that are sums over single rows: delta = rowsum(dout ∘ o), and dsink.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/problem.hpp"
#include "core/threads.hpp"
#include "core/views.hpp"
#include "core/workspace.hpp"
#include "cpu/large_logits.hpp"
#include "cpu/row_kernels.hpp"
#include "cpu/score_row.hpp"

namespace onchip::cpu {

/// dsink[h] = −Σ exp(sink − lse)·delta over the rows of all sequences, in order.
class SinkGradient {
 public:
  SinkGradient(const Problem& problem, WorkspaceCursor& cursor)
      : problem_(problem), sums_(cursor.take<double>(static_cast<std::size_t>(present() ? problem.num_heads_q : 0))) {}

  bool present() const { return problem_.args.dsink.present(); }
  void start() const { std::fill_n(sums_, present() ? problem_.num_heads_q : 0, 0.0); }

  /// Adds the rows of selected heads. `statistics(sequence, head, i)` gives {lse, delta}. Rows without a key have o = 0
  /// and so delta = 0, whatever dout holds.
  template <typename Statistics>
  void add(int threads, const HeadSelection& selected, const Statistics& statistics) const {
    if (!present()) return;
    const Visibility visible(problem_);
    parallel_tasks(problem_.num_heads_q, threads, [&](std::int64_t head, int) {
      const double sink = sink_logit(problem_, head);
      for (std::int64_t b = 0; b < problem_.batch; ++b) {
        if (!selected(b, head / problem_.heads_per_kv())) continue;
        const Sequence s = problem_.sequence(b);
        for (std::int64_t i = 0; i < s.seqlen_q; ++i) {
          const auto [lse, delta] = statistics(s, head, i);
          const bool counts = delta != 0 && lse != -std::numeric_limits<double>::infinity() &&
                              (std::isfinite(delta) || visible.any(s, head, i));
          if (counts) sums_[head] -= std::exp(sink - lse) * delta;
        }
      }
    });
  }

  void write() const {
    const Tensor& gradient = problem_.args.dsink;
    for (std::int64_t head = 0; present() && head < problem_.num_heads_q; ++head)
      static_cast<float*>(gradient.data)[head * gradient.stride[0]] = static_cast<float>(sums_[head]);
  }

 private:
  const Problem& problem_;
  double* sums_;  // [Hq]
};

}  // namespace onchip::cpu
