// standard_backward: the gradients as in the textbook, with the scores and their gradients of all heads in memory.
//
//   S = Q·Kᵀ, dP = dO·Vᵀ                        library products, into two matrices as large as all scores
//   P = exp(scores − lse), dS = P∘(dP − delta)   in their places; delta = rowsum(dO ∘ O); dbias is summed here
//   dV = Pᵀ·dO, dK = scale·dSᵀ·Q, dQ = scale·dS·K
//
// P is rounded to the input type before its product where that has 16 bits.
#include <algorithm>
#include <utility>

#include "cpu/implementations.hpp"
#include "cpu/key_gradients.hpp"
#include "cpu/row_gradients.hpp"
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
class StandardBackward {
 public:
  StandardBackward(const Problem& problem, int threads, WorkspaceCursor& cursor)
      : problem_(problem),
        args_(problem.args),
        threads_(threads),
        q_(cursor, problem.batch, problem.num_heads_q, query_rows(problem), problem.head_dim),
        k_(cursor, problem.batch, problem.num_heads_kv, key_rows(problem), problem.head_dim),
        v_(cursor, problem.batch, problem.num_heads_kv, key_rows(problem), problem.head_dim_v),
        dout_(cursor, problem.batch, problem.num_heads_q, query_rows(problem), problem.head_dim_v),
        lse_(cursor.take<double>(static_cast<std::size_t>(query_rows(problem) * problem.num_heads_q))),
        delta_(cursor.take<double>(static_cast<std::size_t>(query_rows(problem) * problem.num_heads_q))),
        p_(problem, cursor),
        ds_(problem, cursor),
        score_rows_(problem, cursor, threads),
        row_in_double_(problem, cursor, threads),
        round_(problem, cursor, threads),
        visible_(problem),
        dk_(problem, problem.args.dk, cursor),
        dv_(problem, problem.args.dv, cursor),
        users_(problem, cursor),
        block_stride_(std::max(q_.row_stride(), v_.row_stride())),
        block_(cursor.take<T>(static_cast<std::size_t>(threads * kRowsPerTask * block_stride_))),
        wide_rows_(cursor.take<double>(static_cast<std::size_t>(threads * block_stride_))),
        large_(problem, cursor),
        large_scratch_(cursor.take<std::byte>(LargeLogits::scratch_bytes(problem))),
        dsink_(problem, cursor),
        dbias_stride_(problem.args.dbias.present() ? padded<T>(problem.args.dbias.shape[3]) : 0),
        dbias_row_(cursor.take<T>(static_cast<std::size_t>(threads * dbias_stride_))) {}

  void run() const {
    const SingleThreadedBlas single;
    load_queries(problem_, args_.q, threads_, q_);
    load_queries(problem_, args_.dout, threads_, dout_);
    load_keys(problem_, args_.k, KeyScales(problem_, args_.k_scale, problem_.k_scale_kind), threads_, k_);
    load_keys(problem_, args_.v, KeyScales(problem_, args_.v_scale, problem_.v_scale_kind), threads_, v_);
    dk_.start(threads_);
    dv_.start(threads_);
    dsink_.start();
    large_.start(threads_, large_scratch_);
    for_each_query_block([this](auto&&... block) { load_statistics(block...); });
    for_each_query_block([this](auto&&... block) { multiply_qk_and_dov(block...); });
    if (args_.dbias.present())
      differentiate_bias_rows();
    else
      for_each_query_block([this](auto&&... block) { differentiate(block...); });
    if (args_.dq.present()) for_each_query_block([this](auto&&... block) { write_dq(block...); });
    if (dk_.present()) for_each_key_block([this](auto&&... block) { write_dk(block...); });
    if (dv_.present()) for_each_key_block([this](auto&&... block) { write_dv(block...); });
    users_.find(problem_);
    dk_.finish(users_, threads_, block_);
    dv_.finish(users_, threads_, block_);
    for (const bool marked : {false, true})
      dsink_.add(threads_, {large_, marked}, [this](const Sequence& s, std::int64_t head, std::int64_t i) {
        const std::int64_t row = row_index(s, head, i);
        return std::pair<double, double>(lse_[row], delta_[row]);
      });
    dsink_.write();
  }

 private:
  template <typename Body>
  void for_each_query_block(const Body& body) const {
    for_each_block(problem_, problem_.num_heads_q, &Sequence::seqlen_q, problem_.max_seqlen_q, threads_, body);
  }
  template <typename Body>
  void for_each_key_block(const Body& body) const {
    for_each_block(problem_, problem_.num_heads_kv, &Sequence::seqlen_k, problem_.max_seqlen_k, threads_, body);
  }

  const T* query_matrix(const Matrices<T>& m, const Sequence& s, std::int64_t head) const {
    return m.at(first_query_row(problem_, s), s.seqlen_q, head);
  }
  const T* key_matrix(const Matrices<T>& m, const Sequence& s, std::int64_t kv_head) const {
    return m.at(first_key_row(problem_, s), s.seqlen_k, kv_head);
  }
  std::int64_t row_index(const Sequence& s, std::int64_t head, std::int64_t i) const {
    return first_query_row(problem_, s) * problem_.num_heads_q + head * s.seqlen_q + i;
  }
  double* wide_row(int thread) const { return wide_rows_ + thread * block_stride_; }
  T* block(int thread) const { return block_ + thread * kRowsPerTask * block_stride_; }

  void load_statistics(const Sequence& s, std::int64_t head, std::int64_t begin, std::int64_t end, int thread) const {
    const RowKernels<T>& kernels = row_kernels<T>();
    const QueryRows outputs(problem_, args_.o);
    const LseRows lse_rows(problem_, args_.lse);
    for (std::int64_t i = begin; i < end; ++i) {
      T* output = block(thread);
      kernels.load(args_.o.dtype, outputs.at(s, i, head), problem_.head_dim_v, T{1}, output);
      const T* dout = query_matrix(dout_, s, head) + i * dout_.row_stride();
      const std::int64_t half = first_part<T>(dout_.columns());
      delta_[row_index(s, head, i)] =
          kernels.dot(output, dout, half) + kernels.dot(output + half, dout + half, dout_.columns() - half);
      const T lse = *reinterpret_cast<const T*>(lse_rows.at(s, i, head));
      lse_[row_index(s, head, i)] = lse;
      large_.see_lse(s.batch, head / problem_.heads_per_kv(), lse);
    }
  }

  void multiply_qk_and_dov(const Sequence& s, std::int64_t head, std::int64_t begin, std::int64_t end, int) const {
    const auto product = [&](const Matrices<T>& rows, const Matrices<T>& keys, const ScoreMatrices<T>& to) {
      multiply_scores(s, begin, end, rows.columns(), query_matrix(rows, s, head),
                      key_matrix(keys, s, head / problem_.heads_per_kv()), rows.row_stride(), to.at(s, head));
    };
    product(q_, k_, p_);
    product(dout_, v_, ds_);
  }

  void differentiate_row(const Sequence& s, std::int64_t head, std::int64_t i, int thread, T* dbias) const {
    const std::int64_t stride = p_.row_stride(s), at = row_index(s, head, i);
    T* p = p_.at(s, head) + i * stride;
    T* ds = ds_.at(s, head) + i * stride;
    if constexpr (sizeof(T) == sizeof(float)) {
      if (large_.at(s.batch, head / problem_.heads_per_kv())) {
        const RowInDouble::Differentiated row = differentiate_in_double(s, head, i, thread);
        lse_[at] = row.lse, delta_[at] = row.delta;
        for (std::int64_t j = 0; j < s.seqlen_k; ++j) {
          p[j] = static_cast<float>(row.p[j]);
          ds[j] = static_cast<float>(row.ds[j]);
          if (dbias) dbias[j] += static_cast<float>(row.dbias[j]);
        }
        return;
      }
    }
    const T lse = static_cast<T>(lse_[at]);
    row_kernels<T>().softmax_backward(score_rows_.make(s, head, i, thread), {lse, lse, T{1}},
                                      static_cast<T>(delta_[at]), s.seqlen_k, p, ds, dbias);
    round_(p, s.seqlen_k, thread);
  }

  RowInDouble::Differentiated differentiate_in_double(const Sequence& s, std::int64_t head, std::int64_t i,
                                                      int thread) const {
    const auto operands = [&](const Matrices<T>& rows, const Matrices<T>& keys) {
      return RowInDouble::Operands{query_matrix(rows, s, head) + i * rows.row_stride(),
                                   key_matrix(keys, s, head / problem_.heads_per_kv()), keys.row_stride(),
                                   keys.columns()};
    };
    const std::int64_t at = row_index(s, head, i);
    return row_in_double_.differentiate(s, head, i, thread, operands(q_, k_), operands(dout_, v_), lse_[at],
                                        delta_[at]);
  }

  void differentiate(const Sequence& s, std::int64_t head, std::int64_t begin, std::int64_t end, int thread) const {
    for (std::int64_t i = begin; i < end; ++i) differentiate_row(s, head, i, thread, nullptr);
  }

  /// A task owns rows of dbias, and goes through the sequences and heads that share them in order.
  void differentiate_bias_rows() const {
    const Tensor& dbias = args_.dbias;
    const std::int64_t heads = dbias.shape[1], length = dbias.shape[2];
    const std::int64_t blocks = (length + kRowsPerTask - 1) / kRowsPerTask;
    parallel_tasks(dbias.shape[0] * heads * blocks, threads_, [&](std::int64_t task, int thread) {
      const std::int64_t begin = task % blocks * kRowsPerTask, end = std::min(begin + kRowsPerTask, length);
      for (std::int64_t i = begin; i < end; ++i)
        write_dbias_row(task / (heads * blocks), task / blocks % heads, i, thread);
    });
  }

  void write_dbias_row(std::int64_t batch, std::int64_t head, std::int64_t i, int thread) const {
    const Tensor& dbias = args_.dbias;
    const bool all_batches = dbias.shape[0] == 1, all_heads = dbias.shape[1] == 1;
    T* sum = dbias_row_ + thread * dbias_stride_;
    std::fill_n(sum, dbias_stride_, T{0});
    for (std::int64_t b = all_batches ? 0 : batch; b < (all_batches ? problem_.batch : batch + 1); ++b) {
      const Sequence s = problem_.sequence(b);
      if (i >= s.seqlen_q) continue;
      for (std::int64_t h = all_heads ? 0 : head; h < (all_heads ? problem_.num_heads_q : head + 1); ++h)
        differentiate_row(s, h, i, thread, sum);
    }
    const std::int64_t offset = batch * dbias.stride[0] + head * dbias.stride[1] + i * dbias.stride[2];
    auto* row = static_cast<std::byte*>(dbias.data) + offset * static_cast<std::int64_t>(size_of(dbias.dtype));
    row_kernels<T>().store(dbias.dtype, sum, dbias.shape[3], T{1}, row);
  }

  void write_dq(const Sequence& s, std::int64_t head, std::int64_t begin, std::int64_t end, int thread) const {
    const std::int64_t kv_head = head / problem_.heads_per_kv(), stride = ds_.row_stride(s);
    const T* k = key_matrix(k_, s, kv_head);
    const T* ds = ds_.at(s, head);
    T* sum = block(thread);
    if (large_.at(s.batch, kv_head))
      sum_over_keys_in_double(s, head, begin, end, thread, sum);
    else if (k_.all_finite(s.batch, kv_head))
      multiply<T>(end - begin, k_.columns(), s.seqlen_k, {ds + begin * stride, stride}, {k, k_.row_stride()}, false,
                  sum, k_.row_stride());
    else
      sum_over_keys<T>(counted(s, head), begin, end, ds, stride, k, k_.row_stride(), k_.columns(), wide_row(thread),
                       sum);
    const QueryRows rows(problem_, args_.dq);
    for (std::int64_t i = begin; i < end; ++i)
      row_kernels<T>().store(args_.dq.dtype, sum + (i - begin) * k_.row_stride(), k_.columns(), scale(),
                             rows.at(s, i, head));
  }

  /// dQ of rows begin…end−1 from a dS that was never rounded to float: large keys would make much of its rounding.
  void sum_over_keys_in_double(const Sequence& s, std::int64_t head, std::int64_t begin, std::int64_t end, int thread,
                               T* result) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      const T* k = key_matrix(k_, s, head / problem_.heads_per_kv());
      for (std::int64_t i = begin; i < end; ++i) {
        const double* ds = differentiate_in_double(s, head, i, thread).ds;
        sum_over_keys<T>(counted(s, head), i, i + 1, ds - i * s.seqlen_k, s.seqlen_k, k, k_.row_stride(), k_.columns(),
                         wide_row(thread), result + (i - begin) * k_.row_stride());
      }
    }
  }

  void write_dk(const Sequence& s, std::int64_t head, std::int64_t begin, std::int64_t end, int thread) const {
    const T* sum = sum_over_group(s, head, begin, end, ds_, q_, thread);
    for (std::int64_t j = begin; j < end; ++j) dk_.put(s, j, head, sum + (j - begin) * q_.row_stride(), scale());
  }

  void write_dv(const Sequence& s, std::int64_t head, std::int64_t begin, std::int64_t end, int thread) const {
    const T* sum = sum_over_group(s, head, begin, end, p_, dout_, thread);
    for (std::int64_t j = begin; j < end; ++j) dv_.put(s, j, head, sum + (j - begin) * dout_.row_stride(), T{1});
  }

  /// sum[j − begin] = Σ weights[i][j]·values[i] over the queries of all heads that read this KV head.
  const T* sum_over_group(const Sequence& s, std::int64_t kv_head, std::int64_t begin, std::int64_t end,
                          const ScoreMatrices<T>& weights, const Matrices<T>& values, int thread) const {
    T* sum = block(thread);
    const std::int64_t group = problem_.heads_per_kv(), stride = weights.row_stride(s);
    bool apart = large_.at(s.batch, kv_head);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      apart = apart || !values.all_finite(s.batch, head);
    if (apart) return sum_apart(s, kv_head, begin, end, weights, values, thread);
    std::fill_n(sum, (end - begin) * values.row_stride(), T{0});
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      multiply<T>(end - begin, values.columns(), s.seqlen_q, {weights.at(s, head) + begin, stride, Transposed::yes},
                  {query_matrix(values, s, head), values.row_stride()}, true, sum, values.row_stride());
    return sum;
  }

  const T* sum_apart(const Sequence& s, std::int64_t kv_head, std::int64_t begin, std::int64_t end,
                     const ScoreMatrices<T>& weights, const Matrices<T>& values, int thread) const {
    T* sums = block(thread);
    double* sum = wide_row(thread);
    const std::int64_t group = problem_.heads_per_kv(), stride = values.row_stride();
    for (std::int64_t j = begin; j < end; ++j) {
      std::fill_n(sum, values.columns(), 0.0);
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
        add_over_queries<T>(counted(s, head), j, weights.at(s, head), weights.row_stride(s),
                            query_matrix(values, s, head), stride, values.columns(), sum);
      std::copy_n(sum, values.columns(), sums + (j - begin) * stride);
    }
    return sums;
  }

  CountedPairs counted(const Sequence& s, std::int64_t head) const {
    return {visible_, s, head, lse_ + row_index(s, head, 0)};
  }
  T scale() const { return static_cast<T>(problem_.softmax_scale); }

  const Problem& problem_;
  const Attention& args_;
  int threads_;
  Matrices<T> q_, k_, v_, dout_;
  double* lse_;  // both for each sequence, head and query
  double* delta_;
  ScoreMatrices<T> p_, ds_;
  ScoreRowMaker<T> score_rows_;
  RowInDouble row_in_double_;
  RowRounder<T> round_;
  Visibility visible_;
  KeyGradient<T> dk_, dv_;
  PageUsers users_;
  std::int64_t block_stride_;
  T* block_;           // kRowsPerTask rows for each thread
  double* wide_rows_;  // one for each thread
  LargeLogits large_;  // whose rows are computed in double
  std::byte* large_scratch_;
  SinkGradient dsink_;
  std::int64_t dbias_stride_;
  T* dbias_row_;  // one for each thread
};

}  // namespace

const Implementation kStandardBackward{"standard_backward",
                                       Backend::standard,
                                       Pass::backward,
                                       standard_limits,
                                       ByType<StandardBackward>::configure,
                                       ByType<StandardBackward>::run};

}  // namespace onchip::cpu
