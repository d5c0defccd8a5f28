// standard_forward: attention as in the textbook, three sweeps over all scores.
//
//   S = scale·Q·Kᵀ          a library product; S is in the workspace for all sequences and heads
//   P = softmax(S)          softcap, bias, ALiBi, mask and window on the way; takes the place of S
//   O = P·V                 a library product; P is rounded to the input type first where that has 16 bits
//
// It is what the tiled kernels are compared with, in speed, memory and error.
#include <limits>

#include "cpu/implementations.hpp"
#include "cpu/large_logits.hpp"
#include "cpu/score_row.hpp"
#include "cpu/standard/by_type.hpp"
#include "cpu/standard/gemm.hpp"
#include "cpu/standard/isolated_product.hpp"
#include "cpu/standard/limits.hpp"
#include "cpu/standard/matrices.hpp"
#include "cpu/standard/round_row.hpp"
#include "cpu/standard/row_in_double.hpp"

namespace onchip::cpu {
namespace {

template <typename T>
class StandardForward {
 public:
  StandardForward(const Problem& problem, int threads, WorkspaceCursor& cursor)
      : problem_(problem),
        threads_(threads),
        q_(cursor, problem.batch, problem.num_heads_q, query_rows(problem), problem.head_dim),
        k_(cursor, problem.batch, problem.num_heads_kv, key_rows(problem), problem.head_dim),
        v_(cursor, problem.batch, problem.num_heads_kv, key_rows(problem), problem.head_dim_v),
        scores_(problem, cursor),
        score_rows_(problem, cursor, threads),
        large_(problem, cursor),
        large_scratch_(cursor.take<std::byte>(LargeLogits::scratch_bytes(problem))),
        row_in_double_(problem, cursor, threads),
        round_(problem, cursor, threads),
        output_(cursor.take<T>(static_cast<std::size_t>(threads * kRowsPerTask * v_.row_stride()))),
        output_row_(cursor.take<T>(static_cast<std::size_t>(threads * v_.row_stride()))) {}

  void run() const {
    const SingleThreadedBlas single;
    const Attention& args = problem_.args;
    large_.start(threads_, large_scratch_);
    load_queries(problem_, args.q, threads_, q_);
    load_keys(problem_, args.k, KeyScales(problem_, args.k_scale, problem_.k_scale_kind), threads_, k_);
    load_keys(problem_, args.v, KeyScales(problem_, args.v_scale, problem_.v_scale_kind), threads_, v_);
    for_each_query_block([this](auto&&... block) { multiply_qk(block...); });
    for_each_query_block([this](auto&&... block) { normalise(block...); });
    for_each_query_block([this](auto&&... block) { multiply_pv(block...); });
  }

 private:
  template <typename Body>
  void for_each_query_block(const Body& body) const {
    for_each_block(problem_, problem_.num_heads_q, &Sequence::seqlen_q, problem_.max_seqlen_q, threads_, body);
  }

  void multiply_qk(const Sequence& s, std::int64_t head, std::int64_t begin, std::int64_t end, int) const {
    const T* q = q_.at(first_query_row(problem_, s), s.seqlen_q, head);
    const T* k = k_.at(first_key_row(problem_, s), s.seqlen_k, head / problem_.heads_per_kv());
    multiply_scores(s, begin, end, problem_.head_dim, q, k, q_.row_stride(), scores_.at(s, head));
  }

  void normalise(const Sequence& s, std::int64_t head, std::int64_t begin, std::int64_t end, int thread) const {
    const RowKernels<T>& kernels = row_kernels<T>();
    const LseRows lse_rows(problem_, problem_.args.lse);
    const T sink =
        problem_.args.sink.present() ? static_cast<T>(sink_logit(problem_, head)) : -std::numeric_limits<T>::infinity();
    for (std::int64_t i = begin; i < end; ++i) {
      T* row = scores_.at(s, head) + i * scores_.row_stride(s);
      T lse = kernels.softmax(score_rows_.make(s, head, i, thread), sink, s.seqlen_k, row).lse;
      if constexpr (sizeof(T) == sizeof(float)) {
        const std::int64_t kv_head = head / problem_.heads_per_kv();
        if (large_.at(s.batch, kv_head) || too_large_for_float(problem_, lse))
          lse = static_cast<T>(row_in_double_.probabilities(s, head, i, thread, operands(s, head, i), row));
      }
      round_(row, s.seqlen_k, thread);
      if (problem_.args.lse.present()) *reinterpret_cast<T*>(lse_rows.at(s, i, head)) = lse;
    }
  }

  RowInDouble::Operands operands(const Sequence& s, std::int64_t head, std::int64_t i) const {
    return {q_.at(first_query_row(problem_, s), s.seqlen_q, head) + i * q_.row_stride(),
            k_.at(first_key_row(problem_, s), s.seqlen_k, head / problem_.heads_per_kv()), k_.row_stride(),
            k_.columns()};
  }

  void multiply_pv(const Sequence& s, std::int64_t head, std::int64_t begin, std::int64_t end, int thread) const {
    const std::int64_t kv_head = head / problem_.heads_per_kv();
    const std::int64_t columns = problem_.head_dim_v, stride = v_.row_stride();
    const T* v = v_.at(first_key_row(problem_, s), s.seqlen_k, kv_head);
    const T* p = scores_.at(s, head);
    T* output = output_ + thread * kRowsPerTask * stride;
    if (v_.all_finite(s.batch, kv_head)) {
      multiply<T>(end - begin, columns, s.seqlen_k, {p + begin * scores_.row_stride(s), scores_.row_stride(s)},
                  {v, stride}, false, output, stride);
    } else {
      const Visibility visible(problem_);
      sum_over_keys<T>({visible, s, head, nullptr}, begin, end, p, scores_.row_stride(s), v, stride, columns,
                       output_row_ + thread * stride, output);
    }
    const QueryRows rows(problem_, problem_.args.o);
    for (std::int64_t i = begin; i < end; ++i)
      row_kernels<T>().store(problem_.args.o.dtype, output + (i - begin) * stride, columns, T{1}, rows.at(s, i, head));
  }

  const Problem& problem_;
  int threads_;
  Matrices<T> q_, k_, v_;
  ScoreMatrices<T> scores_;
  ScoreRowMaker<T> score_rows_;
  LargeLogits large_;  // whose rows are computed in double
  std::byte* large_scratch_;
  RowInDouble row_in_double_;
  RowRounder<T> round_;
  T* output_;      // a block of rows for each thread
  T* output_row_;  // one for each thread
};

}  // namespace

const Implementation kStandardForward{
    "standard_forward",          Backend::standard, Pass::forward, standard_limits, ByType<StandardForward>::configure,
    ByType<StandardForward>::run};

}  // namespace onchip::cpu
