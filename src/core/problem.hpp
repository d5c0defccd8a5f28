// One validated attention problem. Everything downstream takes a Problem (or a Plan) and checks nothing again.
#pragma once

#include <cstdint>

#include "core/status.hpp"
#include "onchip/onchip.hpp"
#include "shared/mask_range.hpp"

namespace onchip {

/// How q, or k and v, are laid out in memory.
enum class Layout { batched, packed, paged };

/// What one element of k_scale or v_scale applies to.
enum class ScaleGranularity { none, tensor, head, batch_head, token };

/// Whether the tensors' data will be looked at, or only their shapes.
enum class Use { plan, run };

/// One sequence of the batch.
struct Sequence {
  std::int64_t batch;    // its index
  std::int64_t begin_q;  // first row of q in the packed tensor, else 0
  std::int64_t begin_k;  // first row of k in the packed tensor, else 0
  std::int64_t seqlen_q;
  std::int64_t seqlen_k;  // keys that exist
  MaskRange mask;         // causal and window, with this sequence's shift
};

struct Problem {
  Attention args;  // the caller's tensors; options resolved into the fields below
  Pass pass;

  Layout layout_q, layout_k;
  std::int64_t batch, num_heads_q, num_heads_kv, head_dim, head_dim_v;
  std::int64_t max_seqlen_q;  // longest sequence, from cu_seqlens where data is there, else the most it could be
  std::int64_t max_seqlen_k;
  std::int64_t page_size;  // 0 when not paged
  double softmax_scale;
  double softcap;                          // 0: none
  std::int64_t window_left, window_right;  // causal folded in: then window_right = 0
  ScaleGranularity k_scale_kind, v_scale_kind;
  int num_threads;  // at least 1

  std::int64_t heads_per_kv() const { return num_heads_q / num_heads_kv; }
  DType dtype() const { return args.q.dtype; }
  bool quantised_kv() const {
    const DType type = args.k.dtype;
    return type == DType::i8 || type == DType::e4m3 || type == DType::e5m2;
  }

  /// Most keys that sequence b can hold.
  std::int64_t capacity(std::int64_t b) const;
  /// The integers of a tensor, or null where they cannot be looked at: no data (planning), or device memory.
  const std::int32_t* host_values(const Tensor& tensor) const {
    return args.device < 0 ? static_cast<const std::int32_t*>(tensor.data) : nullptr;
  }

  /// Sequence b. A length whose tensor cannot be looked at is the largest that the shapes allow.
  Sequence sequence(std::int64_t b) const;
};

/// Checks every rule of docs/semantics.md once. The contents of cu_seqlens, seqused_k and page_table are checked where
/// they have data; with Use::run all data and the results that the pass writes must be there.
Status make_problem(const Attention& args, Pass pass, Use use, Problem& problem);

}  // namespace onchip
