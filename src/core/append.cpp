// Rows are computed in float (double where q is f64) and rounded once, to the type that they are stored in.
#include "core/append.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/rows.hpp"
#include "core/threads.hpp"
#include "core/views.hpp"
#include "core/workspace.hpp"

namespace onchip {
namespace {

/// One thread's scratch.
template <typename Real>
struct RowBuffers {
  Real* row;  // [max(D, Dv)]
  Real* cos;  // [R/2]
  Real* sin;  // [R/2]
};

std::int64_t half_rotary(const DecodeProblem& p) { return p.rotates() ? p.args.rotary.cos.shape[1] : 0; }

std::int64_t row_size(const DecodeProblem& p) { return std::max(p.before.head_dim, p.before.head_dim_v); }

template <typename Real>
std::size_t buffer_bytes(const DecodeProblem& p) {
  return aligned_bytes<Real>(row_size(p)) + 2 * aligned_bytes<Real>(half_rotary(p));
}

template <typename Real>
RowBuffers<Real> buffers_of(const DecodeProblem& p, std::byte* scratch, int thread) {
  const std::size_t bytes = buffer_bytes<Real>(p);
  WorkspaceCursor cursor({scratch + bytes * static_cast<std::size_t>(thread), bytes});
  Real* row = cursor.take<Real>(row_size(p));
  Real* cos = cursor.take<Real>(half_rotary(p));
  return {row, cos, cursor.take<Real>(half_rotary(p))};
}

/// Calls body(sequence, i, thread) for the tokens 0…count(sequence)−1 of every sequence, in parallel.
template <typename Count, typename Body>
void for_each_token(const Problem& p, std::int64_t longest, std::int64_t token_elements, Count count, Body body) {
  constexpr std::int64_t kElementsPerTask = 1 << 14;
  const std::int64_t block = std::max<std::int64_t>(1, kElementsPerTask / token_elements);
  const std::int64_t blocks = (longest + block - 1) / block;
  parallel_tasks(p.batch * blocks, p.num_threads, [&](std::int64_t task, int thread) {
    const Sequence sequence = p.sequence(task / blocks);
    const std::int64_t begin = task % blocks * block;
    const std::int64_t end = std::min(begin + block, count(sequence));
    for (std::int64_t i = begin; i < end; ++i) body(sequence, i, thread);
  });
}

template <typename Real>
void load_angles(const Rotary& rotary, std::int64_t position, const RowBuffers<Real>& buffers) {
  const auto load = [&](const Tensor& table, Real* dst) {
    const std::int64_t offset = position * table.stride[0] * static_cast<std::int64_t>(size_of(table.dtype));
    load_row(table.dtype, static_cast<const std::byte*>(table.data) + offset, table.shape[1], Real(1), dst);
  };
  load(rotary.cos, buffers.cos);
  load(rotary.sin, buffers.sin);
}

template <typename Real>
void rotate(const Rotary& rotary, const RowBuffers<Real>& buffers) {
  const std::int64_t half = rotary.cos.shape[1];
  for (std::int64_t c = 0; c < half; ++c) {
    Real& x = buffers.row[rotary.interleaved ? 2 * c : c];
    Real& y = buffers.row[rotary.interleaved ? 2 * c + 1 : c + half];
    const Real turned = x * buffers.cos[c] - y * buffers.sin[c];
    y = x * buffers.sin[c] + y * buffers.cos[c];
    x = turned;
  }
}

double largest_value(DType type) { return type == DType::i8 ? 127.0 : type == DType::e4m3 ? 448.0 : 57344.0; }

/// The scale with which a row uses its type's whole range. A row of zeros has scale 1; one with NaN or infinity has
/// NaN, so that it stays NaN.
template <typename Real>
float token_scale(DType type, const Real* row, std::int64_t size) {
  Real largest = 0;
  for (std::int64_t d = 0; d < size; ++d) {
    const Real magnitude = std::abs(row[d]);
    if (magnitude > largest || std::isnan(magnitude)) largest = magnitude;
  }
  const auto scale = static_cast<float>(static_cast<double>(largest) / largest_value(type));
  if (!std::isfinite(scale)) return std::numeric_limits<float>::quiet_NaN();
  return scale == 0.0f ? 1.0f : scale;
}

/// Rows of k or of v in the cache, with their scales.
class CacheRows {
 public:
  CacheRows(const Problem& p, const Tensor& cache, const Tensor& scale, ScaleGranularity kind)
      : type_(cache.dtype), size_(cache.shape[cache.rank - 1]), rows_(p, cache), scales_(p, scale, kind) {}

  std::int64_t size() const { return size_; }

  /// Stores `row`, which is overwritten where the cache is quantised.
  template <typename Real>
  void store(const Sequence& sequence, std::int64_t j, std::int64_t head, Real* row) const {
    if (scales_.kind() == ScaleGranularity::token) *scales_.token(sequence, j, head) = token_scale(type_, row, size_);
    if (scales_.kind() != ScaleGranularity::none) {
      const Real scale = scales_.at(sequence, j, head);
      for (std::int64_t d = 0; d < size_; ++d) row[d] /= scale;
    }
    store_row(type_, row, size_, rows_.at(sequence, j, head));
  }

 private:
  DType type_;
  std::int64_t size_;
  KeyRows rows_;
  KeyScales scales_;
};

template <typename Real>
void rotate_queries_as(const DecodeProblem& p, const Tensor& rotated, std::byte* scratch) {
  const Tensor& q = p.args.attention.q;
  const QueryRows source(p.after, q);
  const QueryRows target(p.after, rotated);
  const auto body = [&](const Sequence& sequence, std::int64_t i, int thread) {
    const RowBuffers<Real> buffers = buffers_of<Real>(p, scratch, thread);
    load_angles(p.args.rotary, i + sequence.mask.shift, buffers);
    for (std::int64_t head = 0; head < p.after.num_heads_q; ++head) {
      load_row(q.dtype, source.at(sequence, i, head), p.after.head_dim, Real(1), buffers.row);
      rotate(p.args.rotary, buffers);
      store_row(q.dtype, buffers.row, p.after.head_dim, target.at(sequence, i, head));
    }
  };
  for_each_token(
      p.after, p.after.max_seqlen_q, p.after.num_heads_q * p.after.head_dim,
      [](const Sequence& sequence) { return sequence.seqlen_q; }, body);
}

template <typename Real>
void append_as(const DecodeProblem& p, std::byte* scratch) {
  const Attention& a = p.before.args;
  const QueryRows k_source(p.before, p.args.k_new);
  const QueryRows v_source(p.before, p.args.v_new);
  const CacheRows k_cache(p.before, a.k, a.k_scale, p.before.k_scale_kind);
  const CacheRows v_cache(p.before, a.v, a.v_scale, p.before.v_scale_kind);
  const auto body = [&](const Sequence& sequence, std::int64_t i, int thread) {
    const RowBuffers<Real> buffers = buffers_of<Real>(p, scratch, thread);
    const std::int64_t j = sequence.seqlen_k + i;
    if (p.rotates()) load_angles(p.args.rotary, j, buffers);
    for (std::int64_t head = 0; head < p.before.num_heads_kv; ++head) {
      load_row(p.args.k_new.dtype, k_source.at(sequence, i, head), k_cache.size(), Real(1), buffers.row);
      if (p.rotates()) rotate(p.args.rotary, buffers);
      k_cache.store(sequence, j, head, buffers.row);
      load_row(p.args.v_new.dtype, v_source.at(sequence, i, head), v_cache.size(), Real(1), buffers.row);
      v_cache.store(sequence, j, head, buffers.row);
    }
  };
  const std::int64_t longest = p.before.layout_q == Layout::packed ? p.before.max_seqlen_q : p.args.k_new.shape[1];
  const std::int64_t token_elements = p.before.num_heads_kv * (p.before.head_dim + p.before.head_dim_v);
  for_each_token(
      p.before, longest, token_elements, [&](const Sequence& sequence) { return p.num_new(sequence); }, body);
}

bool in_double(const DecodeProblem& p) { return p.before.dtype() == DType::f64; }

}  // namespace

std::size_t append_scratch_bytes(const DecodeProblem& p) {
  if (!p.appends() && !p.rotates()) return 0;
  const std::size_t one = in_double(p) ? buffer_bytes<double>(p) : buffer_bytes<float>(p);
  return one * static_cast<std::size_t>(p.before.num_threads);
}

void rotate_queries(const DecodeProblem& p, const Tensor& rotated, std::byte* scratch) {
  if (in_double(p))
    rotate_queries_as<double>(p, rotated, scratch);
  else
    rotate_queries_as<float>(p, rotated, scratch);
}

void append(const DecodeProblem& p, std::byte* scratch) {
  if (in_double(p))
    append_as<double>(p, scratch);
  else
    append_as<float>(p, scratch);
}

}  // namespace onchip
