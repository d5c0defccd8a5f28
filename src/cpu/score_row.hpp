// Finds what each row of scores is made of: bias, mask, slope, window.
#pragma once

#include <cstdint>

#include "core/problem.hpp"
#include "core/views.hpp"
#include "core/workspace.hpp"
#include "cpu/row_kernels.hpp"

namespace onchip::cpu {

/// Whether a query may see a key: causal mask, window and mask.
class Visibility {
 public:
  explicit Visibility(const Problem& problem) : masked_(problem.args.mask.present()), mask_(problem.args.mask) {}

  bool operator()(const Sequence& sequence, std::int64_t head, std::int64_t i, std::int64_t j) const {
    if (!sequence.mask.keys(i).contains(j)) return false;
    return !masked_ || mask_.at(sequence, head, i)[j] != std::byte{0};
  }
  bool any(const Sequence& sequence, std::int64_t head, std::int64_t i) const {
    const KeyRange keys = sequence.mask.keys(i);
    for (std::int64_t j = keys.begin; j < keys.end; ++j)
      if ((*this)(sequence, head, i, j)) return true;
    return false;
  }

 private:
  bool masked_;
  ScoreRows mask_;
};

/// Makes ScoreRows; the scratch of one thread holds the bias and mask of the last one made.
template <typename T>
class ScoreRowMaker {
 public:
  ScoreRowMaker(const Problem& problem, WorkspaceCursor& cursor, int threads)
      : problem_(problem),
        bias_(problem.args.bias),
        mask_(problem.args.mask),
        stride_(padded<T>(problem.max_seqlen_k)),
        bias_scratch_(take(cursor, problem.args.bias, threads)),
        mask_scratch_(take(cursor, problem.args.mask, threads)) {}

  ScoreRow<T> make(const Sequence& sequence, std::int64_t head, std::int64_t i, int thread) const {
    const Attention& args = problem_.args;
    ScoreRow<T> row{};
    row.scale = static_cast<T>(problem_.softmax_scale);
    row.softcap = static_cast<T>(problem_.softcap);
    row.bias = load(args.bias, bias_.at(sequence, head, i), sequence.seqlen_k, bias_scratch_, thread);
    row.mask = load(args.mask, mask_.at(sequence, head, i), sequence.seqlen_k, mask_scratch_, thread);
    row.slope = args.alibi_slopes.present() ? static_cast<T>(alibi_slope(problem_, sequence, head)) : T{0};
    row.position = static_cast<T>(i + sequence.mask.shift);
    row.visible = sequence.mask.keys(i);
    return row;
  }

 private:
  T* take(WorkspaceCursor& cursor, const Tensor& tensor, int threads) const {
    return tensor.present() ? cursor.take<T>(static_cast<std::size_t>(threads * stride_)) : nullptr;
  }
  const T* load(const Tensor& tensor, const std::byte* from, std::int64_t n, T* scratch, int thread) const {
    if (!tensor.present()) return nullptr;
    T* row = scratch + thread * stride_;
    row_kernels<T>().load(tensor.dtype, from, n, T{1}, row);
    return row;
  }

  const Problem& problem_;
  ScoreRows bias_, mask_;
  std::int64_t stride_;
  T* bias_scratch_;
  T* mask_scratch_;
};

}  // namespace onchip::cpu
