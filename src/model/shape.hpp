// The size of an attention problem, as the traffic model sees it: sequences of equal lengths, types as bytes.
#pragma once

#include <cstdint>

#include "onchip/onchip.hpp"
#include "shared/mask_range.hpp"

namespace onchip::model {

struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t seqlen_q = 0;
  std::int64_t seqlen_k = 0;
  std::int64_t num_heads_q = 1;
  std::int64_t num_heads_kv = 1;
  std::int64_t head_dim = 0;
  std::int64_t head_dim_v = 0;
  std::int64_t window_left = -1;   ///< −1: no bound
  std::int64_t window_right = -1;  ///< causal is 0
  bool top_left = false;
  DType dtype = DType::f32;      ///< of q
  DType kv_dtype = DType::f32;   ///< of k and v
  bool scale_per_token = false;  ///< an f32 for each stored key and for each value
  /// Bytes of bias and mask for one query-key pair, and how many heads of the batch share each of their elements.
  double score_bytes_per_pair = 0;
  double score_sharers = 1;

  std::int64_t heads_per_kv() const { return num_heads_q / num_heads_kv; }
  MaskRange mask() const { return {seqlen_k, top_left ? 0 : seqlen_k - seqlen_q, window_left, window_right}; }

  double q_bytes() const;    ///< all of q
  double o_bytes() const;    ///< all of o
  double lse_bytes() const;  ///< all of lse
  double key_bytes() const;  ///< one key of one head with its value, and their scales
  /// Keys and values that at least one query sees, all heads.
  double visible_kv_bytes() const;
  /// Bias and mask, each element once.
  double score_bytes() const;
  /// Query-key pairs that the mask range leaves, all heads.
  double pairs() const;
  double flops(Pass pass) const;
};

/// The type of o: bf16 where q is e4m3, else the type of q.
DType output_dtype(DType q_dtype);

}  // namespace onchip::model
