// How backends find rows of the caller's tensors: strides, packing and pages are resolved here and nowhere else.
// A view is a few integers by value; offsets are 64-bit bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/problem.hpp"

namespace onchip {

/// Rows of q, o, dout or dq (packed or batched): at(sequence, i, h) is the first element of query i of head h.
class QueryRows {
 public:
  QueryRows(const Problem& problem, const Tensor& tensor);

  std::byte* at(const Sequence& sequence, std::int64_t i, std::int64_t head) const {
    return base_ + sequence.batch * batch_bytes_ + (sequence.begin_q + i) * row_bytes_ + head * head_bytes_;
  }
  std::int64_t row_bytes() const { return row_bytes_; }

 private:
  std::byte* base_;
  std::int64_t batch_bytes_;  // 0 when packed
  std::int64_t row_bytes_;
  std::int64_t head_bytes_;
};

/// Rows of k, v, dk or dv (packed, batched or paged): at(sequence, j, h) is the first element of key j of KV head h.
/// Within one page, and everywhere when not paged, consecutive keys are row_bytes() apart: see run_length().
class KeyRows {
 public:
  KeyRows(const Problem& problem, const Tensor& tensor);

  std::byte* at(const Sequence& sequence, std::int64_t j, std::int64_t head) const {
    std::byte* head_base = base_ + head * head_bytes_;
    if (page_size_ == 0) return head_base + sequence.batch * batch_bytes_ + (sequence.begin_k + j) * row_bytes_;
    return head_base + page(sequence, j) * batch_bytes_ + (j % page_size_) * row_bytes_;
  }
  std::int64_t row_bytes() const { return row_bytes_; }

  /// How many keys from j on, at most `limit`, follow each other at row_bytes() distance.
  std::int64_t run_length(std::int64_t j, std::int64_t limit) const {
    if (page_size_ == 0) return limit;
    const std::int64_t left = page_size_ - j % page_size_;
    return left < limit ? left : limit;
  }

  /// The page of the pool that holds key j.
  std::int64_t page(const Sequence& sequence, std::int64_t j) const {
    return page_table_[sequence.batch * page_table_stride_ + (j / page_size_) * page_index_stride_];
  }

 private:
  std::byte* base_;
  std::int64_t batch_bytes_;  // of a sequence, or of a page; 0 when packed
  std::int64_t row_bytes_;
  std::int64_t head_bytes_;
  std::int64_t page_size_;
  const std::int32_t* page_table_;
  std::int64_t page_table_stride_;
  std::int64_t page_index_stride_;
};

/// lse: at(sequence, i, h) is one number.
class LseRows {
 public:
  LseRows(const Problem& problem, const Tensor& tensor);

  std::byte* at(const Sequence& sequence, std::int64_t i, std::int64_t head) const {
    return base_ + sequence.batch * batch_bytes_ + head * head_bytes_ + (sequence.begin_q + i) * row_bytes_;
  }

 private:
  std::byte* base_;
  std::int64_t batch_bytes_;  // 0 when packed
  std::int64_t head_bytes_;
  std::int64_t row_bytes_;
};

/// Rows of bias, mask or dbias: at(sequence, h, i) is the element of key 0; keys follow each other without gaps.
/// Dimensions of size 1 broadcast.
class ScoreRows {
 public:
  explicit ScoreRows(const Tensor& tensor);

  std::byte* at(const Sequence& sequence, std::int64_t head, std::int64_t i) const {
    return base_ + sequence.batch * batch_bytes_ + head * head_bytes_ + i * row_bytes_;
  }

 private:
  std::byte* base_;
  std::int64_t batch_bytes_;  // 0 when broadcast
  std::int64_t head_bytes_;   // 0 when broadcast
  std::int64_t row_bytes_;
};

/// k_scale or v_scale: at(sequence, j, h); 1 where the tensor is absent.
class KeyScales {
 public:
  KeyScales(const Problem& problem, const Tensor& tensor, ScaleGranularity kind);

  ScaleGranularity kind() const { return kind_; }
  float at(const Sequence& sequence, std::int64_t j, std::int64_t head) const;
  /// Where a scale per token lives, for writing; only with ScaleGranularity::token.
  float* token(const Sequence& sequence, std::int64_t j, std::int64_t head) const {
    return reinterpret_cast<float*>(tokens_.at(sequence, j, head));
  }

 private:
  ScaleGranularity kind_;
  KeyRows tokens_;
  const float* base_;
  std::int64_t batch_stride_;
  std::int64_t head_stride_;
};

/// alibi_slopes of one query head; only where the tensor is present.
float alibi_slope(const Problem& problem, const Sequence& sequence, std::int64_t head);
/// sink of one query head; only where the tensor is present.
float sink_logit(const Problem& problem, std::int64_t head);

}  // namespace onchip
