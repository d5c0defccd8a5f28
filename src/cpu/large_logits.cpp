#include "cpu/large_logits.hpp"

#include <algorithm>
#include <bit>

#include "core/threads.hpp"
#include "core/views.hpp"
#include "cpu/row_kernels.hpp"

namespace onchip::cpu {
namespace {

constexpr double kLargestLogitOfF32 = 32;
constexpr double kLargestLogitOf16 = 4096;

/// |q|·|k|·scale, which bounds a logit from above, and is many times larger than most logits of long rows.
constexpr double kLargestNormsOfF32 = 128;

/// |dout|·|v|·scale·|q|/√D, which bounds what one pair adds to a typical element of dk (with |k|, of dq): √Dv for
/// inputs of size 1.
constexpr double kLargestGradientOfF32 = 64;

constexpr std::int64_t kRowsPerTask = 128;

/// Floats that are not negative compare as their bits do.
void raise_to(std::uint32_t& largest, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  std::atomic_ref<std::uint32_t> shared(largest);
  std::uint32_t old = shared.load(std::memory_order_relaxed);
  while (old < bits && !shared.compare_exchange_weak(old, bits, std::memory_order_relaxed)) {
  }
}

/// |row|², or 0 for a row that is not finite: it must not change a bit of the rows that do not see it.
float finite_square(const Tensor& tensor, const std::byte* from, float factor, float* scratch) {
  const RowKernels<float>& kernels = row_kernels<float>();
  const std::int64_t columns = tensor.shape[tensor.rank - 1];
  const auto* row = reinterpret_cast<const float*>(from);
  if (tensor.dtype != DType::f32) {
    kernels.load(tensor.dtype, from, columns, factor, scratch);
    row = scratch;
  }
  const float square = kernels.square_sum(row, columns);
  return std::isfinite(square) ? square : 0;
}

}  // namespace

bool too_large_for_float(const Problem& problem, double lse) {
  return std::isfinite(lse) && std::abs(lse) > (problem.dtype() == DType::f32 ? kLargestLogitOfF32 : kLargestLogitOf16);
}

std::size_t LargeLogits::scratch_bytes(const Problem& problem) {
  if (problem.dtype() != DType::f32) return 0;
  return aligned_bytes<float>(static_cast<std::size_t>(problem.num_threads * padded<float>(problem.head_dim)));
}

void LargeLogits::start(int threads, std::byte* scratch) const {
  std::fill_n(marks_, count(), std::uint8_t{0});
  if (problem_.dtype() == DType::f32) find_large_norms(threads, reinterpret_cast<float*>(scratch));
}

void LargeLogits::find_large_norms(int threads, float* rows) const {
  const Problem& p = problem_;
  const Attention& a = p.args;
  std::fill_n(norms_, kNorms * count(), std::uint32_t{0});
  const QueryRows q_rows(p, a.q), dout_rows(p, a.dout);
  const KeyRows k_rows(p, a.k), v_rows(p, a.v);
  const KeyScales k_scales(p, a.k_scale, p.k_scale_kind);
  const std::int64_t steps = (std::max(p.max_seqlen_q, p.max_seqlen_k) + kRowsPerTask - 1) / kRowsPerTask;
  // Heads are the inner loop: their rows lie side by side in most layouts.
  parallel_tasks(p.batch * steps, threads, [&](std::int64_t task, int thread) {
    const Sequence s = p.sequence(task / steps);
    const std::int64_t begin = task % steps * kRowsPerTask, end = begin + kRowsPerTask;
    float* scratch = rows + thread * padded<float>(p.head_dim);
    std::uint32_t* norms = norms_ + kNorms * index(s.batch, 0);
    const auto see_queries = [&](const Tensor& tensor, const QueryRows& from, Norm norm) {
      for (std::int64_t i = begin; i < std::min(end, s.seqlen_q); ++i)
        for (std::int64_t head = 0; head < p.num_heads_q; ++head)
          raise_to(norms[head / p.heads_per_kv() * kNorms + norm],
                   finite_square(tensor, from.at(s, i, head), 1.0f, scratch));
    };
    const auto see_keys = [&](const Tensor& tensor, const KeyRows& from, Norm norm) {
      for (std::int64_t j = begin; j < std::min(end, s.seqlen_k); ++j)
        for (std::int64_t head = 0; head < p.num_heads_kv; ++head)
          raise_to(norms[head * kNorms + norm],
                   finite_square(tensor, from.at(s, j, head), k_scales.at(s, j, head), scratch));
    };
    see_queries(a.q, q_rows, kQ);
    see_keys(a.k, k_rows, kK);
    if (p.pass == Pass::forward) return;
    see_queries(a.dout, dout_rows, kDout);
    see_keys(a.v, v_rows, kV);
  });
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t kv_head = 0; kv_head < p.num_heads_kv; ++kv_head)
      if (has_large_norms(norms_ + kNorms * index(b, kv_head))) set(b, kv_head);
}

bool LargeLogits::has_large_norms(const std::uint32_t* squares) const {
  const auto norm = [&](Norm which) { return std::sqrt(static_cast<double>(std::bit_cast<float>(squares[which]))); };
  const double scale = std::abs(problem_.softmax_scale), logit = scale * norm(kQ) * norm(kK);
  if (logit > kLargestNormsOfF32) return true;
  if (problem_.pass == Pass::forward) return false;
  // The slope of a small softcap changes with its logit faster than a probability does.
  if (problem_.softcap > 0 && logit / problem_.softcap > kLargestNormsOfF32 / 2) return true;
  const double gradient = norm(kDout) * norm(kV) * scale * std::max(norm(kQ), norm(kK));
  return gradient / std::sqrt(static_cast<double>(problem_.head_dim)) > kLargestGradientOfF32;
}

void LargeLogits::see_lse(std::int64_t batch, std::int64_t kv_head, double lse) const {
  if (applies_ && too_large_for_float(problem_, lse)) set(batch, kv_head);
}

bool LargeLogits::any() const {
  return std::any_of(marks_, marks_ + count(), [](std::uint8_t mark) { return mark != 0; });
}
bool LargeLogits::all() const {
  return count() > 0 && std::all_of(marks_, marks_ + count(), [](std::uint8_t mark) { return mark != 0; });
}

}  // namespace onchip::cpu
