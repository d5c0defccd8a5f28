// How the decode kernel reads K and V: strip by strip, a few keys of each head of its task.
//
// Heads usually lie side by side in memory. So a strip is worked on for all heads before the next one is begun: memory
// is then read from front to back, and prefetched in that order.
//
// A strip is used where it lies: elements of other types than T become T in registers, for one, two or four rows of
// queries at once. For more rows it is converted to scratch first, once for all of them.
#if defined(ONCHIP_CPU_SIMD_STRIPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONCHIP_CPU_SIMD_STRIPS_INL_H_
#undef ONCHIP_CPU_SIMD_STRIPS_INL_H_
#else
#define ONCHIP_CPU_SIMD_STRIPS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "cpu/decode_kernel.hpp"
#include "cpu/prefetch.hpp"
#include "cpu/simd/convert-inl.h"
#include "cpu/simd/dot-inl.h"
#include "cpu/simd/targets.hpp"
#include "cpu/simd/weighted_sum-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Bytes that the strips of all heads take in memory. Longer strips look less like one stream to the hardware's
/// prefetching, shorter ones cost too many calls: where they would have few keys they may take twice as much.
inline constexpr int64_t kStripBytes = 8192;
inline constexpr int64_t kFewStripKeys = 8;
inline constexpr int64_t kMostStripKeys = 32;

/// How far ahead of the strip at work memory is asked for: with 8 KiB it arrives too late, and beside a strip it has
/// room in L1.
inline constexpr int64_t kBytesAhead = 16384;

/// As many keys as `bytes` hold, all heads together: a multiple of kDotKeys.
inline int64_t keys_in(int64_t bytes, const Problem& problem, const Tensor& tensor) {
  const int64_t head_dim = tensor.shape[tensor.rank - 1];
  const int64_t key_bytes = problem.num_heads_kv * head_dim * static_cast<int64_t>(size_of(tensor.dtype));
  const int64_t fits = bytes / key_bytes / kDotKeys * kDotKeys;
  return fits < kDotKeys ? kDotKeys : fits;
}

/// Keys in a strip for `rows` rows of a head. Not a matter of how many heads a task has: a row's bits depend on it.
inline int64_t strip_keys(const Problem& problem, const Tensor& tensor, int64_t rows) {
  const int64_t keys = keys_in(kStripBytes, problem, tensor), twice = keys_in(2 * kStripBytes, problem, tensor);
  const int64_t enough = rows > 2 ? 2 * kFewStripKeys : kFewStripKeys;
  const int64_t wanted = keys > enough ? keys : enough < twice ? enough : twice;
  return wanted < kMostStripKeys ? wanted : kMostStripKeys;
}

/// K or V of the task's heads, strip by strip.
template <typename T>
class Strips {
 public:
  Strips(const Problem& problem, const DecodeTask& task, const Tensor& tensor, int64_t stride)
      : rows_(problem, tensor),
        task_(task),
        dtype_(tensor.dtype),
        head_dim_(tensor.shape[tensor.rank - 1]),
        stride_(stride),
        keys_(strip_keys(problem, tensor, task.rows())),
        keys_ahead_(keys_in(kBytesAhead, problem, tensor)),
        row_bytes_(head_dim_ * static_cast<int64_t>(size_of(dtype_))),
        adjacent_(rows_.row_bytes() == task.num_heads * row_bytes_),
        in_step_(task.rows() >= static_cast<int64_t>(size_of(dtype_))),
        in_place_(head_dim_ == stride && (dtype_ == kOwnType || reads_other_types())) {}

  /// Calls use(head, first key, keys, RowRun of the keys) for every strip and head. Rows are of type T or, with few
  /// rows of queries, of the tensor's type.
  template <class Use>
  HWY_INLINE void for_each(T* scratch, const Use& use) const {
    if (!in_place_) return for_each_converted(scratch, use);
    if constexpr (sizeof(T) == 4) {
      if (dtype_ == DType::bf16) return for_each_in_place<BFloat16>(use);
      if (dtype_ == DType::f16) return for_each_in_place<Float16>(use);
      if (dtype_ == DType::e4m3) return for_each_in_place<Float8E4M3>(use);
      if (dtype_ == DType::e5m2) return for_each_in_place<Float8E5M2>(use);
      if (dtype_ == DType::i8) return for_each_in_place<std::int8_t>(use);
    }
    for_each_in_place<T>(use);
  }

  void load(int64_t j, int64_t h, T* scratch) const { load_row(dtype_, row(j, h), head_dim_, T(1), scratch); }

  /// What for_each() expects to be under way when it begins.
  void prefetch_first() const { prefetch({task_.keys.begin, task_.keys.begin + keys_ahead_}); }

 private:
  static constexpr DType kOwnType = sizeof(T) == 8 ? DType::f64 : DType::f32;

  /// Tiny pages are gathered in scratch, lest strips have a key or two.
  bool reads_other_types() const {
    return sizeof(T) == 4 && is_few_rows(task_.rows()) && rows_.run_length(0, kFewStripKeys) == kFewStripKeys;
  }

  template <typename Element, class Use>
  HWY_INLINE void for_each_in_place(const Use& use) const {
    const auto element_row = [&](int64_t j, int64_t h) { return reinterpret_cast<const Element*>(row(j, h)); };
    const int64_t stride = rows_.row_bytes() / static_cast<int64_t>(sizeof(Element));
    for (int64_t j = task_.keys.begin, n; j < task_.keys.end; j += n) {
      n = rows_.run_length(j, strip_length(j));
      Ahead ahead(*this, j, n);
      for (int64_t h = 0; h < task_.num_heads; ++h) {
        RowRun<Element> run{element_row(j, h), stride};
        if (!ahead.in_step()) {
          ahead.prefetch_share();
        } else if (adjacent_) {
          run.ahead = element_row(ahead.begin(), 0) + h * n * head_dim_;
          run.ahead_stride = head_dim_;
        } else {
          run.ahead = element_row(ahead.begin(), h);
          run.ahead_stride = stride;
        }
        use(h, j, n, run);
      }
    }
  }

  template <class Use>
  HWY_INLINE void for_each_converted(T* scratch, const Use& use) const {
    for (int64_t j = task_.keys.begin, n; j < task_.keys.end; j += n) {
      n = strip_length(j);
      Ahead ahead(*this, j, n);
      for (int64_t h = 0; h < task_.num_heads; ++h) {
        ahead.prefetch_share();
        for (int64_t i = 0, run; i < n; i += run) {
          run = rows_.run_length(j + i, n - i);
          load_rows(dtype_, row(j + i, h), rows_.row_bytes(), run, head_dim_, scratch + i * stride_, stride_);
        }
        use(h, j, n, RowRun<T>{scratch, stride_});
      }
    }
  }

  int64_t strip_length(int64_t j) const { return task_.keys.end - j < keys_ ? task_.keys.end - j : keys_; }

  /// The strip to ask for beside the work on keys j … j + n − 1: a few lines with each row, or a share at the beginning
  /// of each head's work. The former keeps arithmetic going where there is much of it for each byte (30 % with four
  /// rows, 15 % with keys of one byte), the latter suits memory where there is little (10 %; Zen 5, 2026-11-29).
  class Ahead {
   public:
    HWY_INLINE Ahead(const Strips& strips, int64_t j, int64_t n)
        : strips_(strips),
          share_((n + strips.task_.num_heads - 1) / strips.task_.num_heads),
          next_(j + strips.keys_ahead_),
          end_(next_ + n),
          in_step_(strips.in_step_ && end_ <= strips.task_.keys.end && strips.rows_.run_length(next_, n) == n) {}

    bool in_step() const { return in_step_; }
    int64_t begin() const { return next_; }

    HWY_INLINE void prefetch_share() {
      if (next_ >= end_) return;
      strips_.prefetch({next_, next_ + share_ < end_ ? next_ + share_ : end_});
      next_ += share_;
    }

   private:
    const Strips& strips_;
    const int64_t share_;
    int64_t next_;
    const int64_t end_;
    const bool in_step_;
  };

  /// All heads of the keys that lie in the task.
  HWY_INLINE void prefetch(KeyRange keys) const {
    const int64_t end = keys.end < task_.keys.end ? keys.end : task_.keys.end;
    const int64_t pieces = adjacent_ ? 1 : task_.num_heads, bytes = adjacent_ ? rows_.row_bytes() : row_bytes_;
    for (int64_t j = keys.begin, run; j < end; j += run) {
      run = rows_.run_length(j, end - j);
      for (int64_t h = 0; h < pieces; ++h) {
        const std::byte* address = row(j, h);
        for (int64_t i = 0; i < run; ++i) prefetch_bytes(address + i * rows_.row_bytes(), bytes);
      }
    }
  }

  const std::byte* row(int64_t j, int64_t h) const {
    return rows_.at(task_.first.sequence, j, task_.first.kv_head + h);
  }

  const KeyRows rows_;
  const DecodeTask& task_;
  const DType dtype_;
  const int64_t head_dim_, stride_, keys_, keys_ahead_, row_bytes_;
  const bool adjacent_;  // nothing between the rows of the task's heads, nor between keys
  const bool in_step_;   // see Ahead
  const bool in_place_;
};

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONCHIP_CPU_SIMD_STRIPS_INL_H_
