// The workspace of standard attention: inputs as dense matrices of the compute type, one [rows][padded D] matrix for
// each sequence and head, and the scores, all of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/problem.hpp"
#include "core/threads.hpp"
#include "core/views.hpp"
#include "core/workspace.hpp"
#include "cpu/row_kernels.hpp"
#include "cpu/row_order.hpp"
#include "cpu/standard/gemm.hpp"

namespace onchip::cpu {

/// Rows of a matrix that one task works on. Fixed, so that results do not depend on the number of threads.
inline constexpr std::int64_t kRowsPerTask = 256;

/// Calls body(sequence, head, begin, end, thread) for blocks of at most kRowsPerTask rows; `length` is Sequence's
/// seqlen_q or seqlen_k, `longest` the largest of them.
template <typename Body>
void for_each_block(const Problem& problem, std::int64_t heads, std::int64_t Sequence::*length, std::int64_t longest,
                    int threads, const Body& body) {
  const std::int64_t blocks = (longest + kRowsPerTask - 1) / kRowsPerTask;
  parallel_tasks(problem.batch * heads * blocks, threads, [&](std::int64_t task, int thread) {
    const Sequence sequence = problem.sequence(task / (heads * blocks));
    const std::int64_t begin = task % blocks * kRowsPerTask;
    const std::int64_t end = std::min(begin + kRowsPerTask, sequence.*length);
    if (begin < end) body(sequence, task / blocks % heads, begin, end, thread);
  });
}

/// Dense copies of one tensor's rows. Knows for each sequence and head whether all of it is finite.
template <typename T>
class Matrices {
 public:
  Matrices(WorkspaceCursor& cursor, std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t columns)
      : heads_(heads),
        columns_(columns),
        stride_(padded<T>(columns)),
        data_(cursor.take<T>(static_cast<std::size_t>(rows * heads * stride_))),
        infinite_(cursor.take<std::uint8_t>(static_cast<std::size_t>(batch * heads))) {}

  std::int64_t row_stride() const { return stride_; }
  std::int64_t columns() const { return columns_; }

  /// Row 0 of a head of a sequence that has `length` rows, the first of them at `first_row`.
  T* at(std::int64_t first_row, std::int64_t length, std::int64_t head) const {
    return data_ + (first_row * heads_ + head * length) * stride_;
  }
  bool all_finite(std::int64_t batch, std::int64_t head) const { return infinite_[batch * heads_ + head] == 0; }

  void clear_findings(std::int64_t batch) const { std::fill_n(infinite_, batch * heads_, std::uint8_t{0}); }
  void note_infinite(std::int64_t batch, std::int64_t head) const {
    std::atomic_ref<std::uint8_t>(infinite_[batch * heads_ + head]).store(1, std::memory_order_relaxed);
  }

 private:
  std::int64_t heads_, columns_, stride_;
  T* data_;
  std::uint8_t* infinite_;
};

/// Copies rows of q, dout or o.
template <typename T>
void load_queries(const Problem& problem, const Tensor& tensor, int threads, const Matrices<T>& to) {
  const QueryRows rows(problem, tensor);
  const RowKernels<T>& kernels = row_kernels<T>();
  to.clear_findings(problem.batch);
  for_each_block(problem, problem.num_heads_q, &Sequence::seqlen_q, problem.max_seqlen_q, threads,
                 [&](const Sequence& s, std::int64_t head, std::int64_t begin, std::int64_t end, int) {
                   T* matrix = to.at(first_query_row(problem, s), s.seqlen_q, head);
                   bool finite = true;
                   for (std::int64_t i = begin; i < end; ++i) {
                     T* row = matrix + i * to.row_stride();
                     kernels.load(tensor.dtype, rows.at(s, i, head), to.columns(), T{1}, row);
                     finite &= kernels.finite(row, to.columns());
                   }
                   if (!finite) to.note_infinite(s.batch, head);
                 });
}

/// Copies rows of k or v, multiplied by their scales.
template <typename T>
void load_keys(const Problem& problem, const Tensor& tensor, const KeyScales& scales, int threads,
               const Matrices<T>& to) {
  const KeyRows rows(problem, tensor);
  const RowKernels<T>& kernels = row_kernels<T>();
  to.clear_findings(problem.batch);
  for_each_block(problem, problem.num_heads_kv, &Sequence::seqlen_k, problem.max_seqlen_k, threads,
                 [&](const Sequence& s, std::int64_t head, std::int64_t begin, std::int64_t end, int) {
                   T* matrix = to.at(first_key_row(problem, s), s.seqlen_k, head);
                   bool finite = true;
                   for (std::int64_t j = begin; j < end; ++j) {
                     T* row = matrix + j * to.row_stride();
                     const T scale = static_cast<T>(scales.at(s, j, head));
                     kernels.load(tensor.dtype, rows.at(s, j, head), to.columns(), scale, row);
                     finite &= kernels.finite(row, to.columns());
                   }
                   if (!finite) to.note_infinite(s.batch, head);
                 });
}

/// One [seqlen_q][padded seqlen_k] matrix for each sequence and query head.
template <typename T>
class ScoreMatrices {
 public:
  ScoreMatrices(const Problem& problem, WorkspaceCursor& cursor)
      : begin_(cursor.take<std::int64_t>(static_cast<std::size_t>(problem.batch))),
        data_(cursor.take<T>(static_cast<std::size_t>(elements(problem)))) {
    if (data_ == nullptr) return;
    std::int64_t at = 0;
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      begin_[b] = at;
      at += elements(problem, problem.sequence(b));
    }
  }

  static std::int64_t row_stride(const Sequence& s) { return padded<T>(s.seqlen_k); }
  T* at(const Sequence& s, std::int64_t head) const {
    return data_ + begin_[s.batch] + head * s.seqlen_q * row_stride(s);
  }

  static std::int64_t elements(const Problem& p, const Sequence& s) {
    return p.num_heads_q * s.seqlen_q * row_stride(s);
  }
  /// While lengths are unknown every packed sequence counts as the longest possible; together they have no more rows
  /// than the tensor.
  static std::int64_t elements(const Problem& p) {
    std::int64_t sum = 0;
    const std::int64_t most = p.num_heads_q * query_rows(p) * padded<T>(p.max_seqlen_k);
    for (std::int64_t b = 0; b < p.batch && sum < most; ++b) sum += elements(p, p.sequence(b));
    return std::min(sum, most);
  }

 private:
  std::int64_t* begin_;
  T* data_;
};

/// Dot products in float are sums of two halves, of which this is the length of the first: where logits are in the
/// hundreds one long chain of roundings costs probabilities more than the 2e-5 that they are held to.
template <typename T>
std::int64_t first_part(std::int64_t depth) {
  return sizeof(T) == sizeof(float) ? depth / 2 : 0;
}

/// scores[i][j] = rows_i·keys_j for queries begin…end−1 and all keys of a sequence; `rows` and `keys` are its matrices.
template <typename T>
void multiply_scores(const Sequence& s, std::int64_t begin, std::int64_t end, std::int64_t depth, const T* rows,
                     const T* keys, std::int64_t operand_stride, T* scores) {
  const std::int64_t stride = ScoreMatrices<T>::row_stride(s);
  const std::int64_t half = first_part<T>(depth);
  const auto add_product = [&](std::int64_t first, std::int64_t count) {
    multiply<T>(end - begin, s.seqlen_k, count, {rows + begin * operand_stride + first, operand_stride},
                {keys + first, operand_stride, Transposed::yes}, first > 0, scores + begin * stride, stride);
  };
  if (half > 0) add_product(0, half);
  add_product(half, depth - half);
}

}  // namespace onchip::cpu
