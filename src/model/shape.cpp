#include "model/shape.hpp"

namespace onchip::model {
namespace {

double size(DType type) { return static_cast<double>(size_of(type)); }

}  // namespace

DType output_dtype(DType q_dtype) { return q_dtype == DType::e4m3 ? DType::bf16 : q_dtype; }

double AttentionShape::q_bytes() const {
  return static_cast<double>(batch * num_heads_q) * static_cast<double>(seqlen_q * head_dim) * size(dtype);
}

double AttentionShape::o_bytes() const {
  return static_cast<double>(batch * num_heads_q) * static_cast<double>(seqlen_q * head_dim_v) *
         size(output_dtype(dtype));
}

double AttentionShape::lse_bytes() const {
  return static_cast<double>(batch * num_heads_q) * static_cast<double>(seqlen_q) * (dtype == DType::f64 ? 8 : 4);
}

double AttentionShape::key_bytes() const {
  return static_cast<double>(head_dim + head_dim_v) * size(kv_dtype) + (scale_per_token ? 2 * sizeof(float) : 0);
}

double AttentionShape::visible_kv_bytes() const {
  if (seqlen_q == 0) return 0;
  const double keys = static_cast<double>(mask().keys_of_any(0, seqlen_q - 1).size());
  return static_cast<double>(batch * num_heads_kv) * keys * key_bytes();
}

double AttentionShape::score_bytes() const { return score_bytes_per_pair * pairs() / score_sharers; }

double AttentionShape::pairs() const {
  return static_cast<double>(batch * num_heads_q) * mask().visible_pairs(seqlen_q);
}

double AttentionShape::flops(Pass pass) const {
  // Forward Q·Kᵀ and P·V. Backward S and dP again, then dQ, dK and dV: three sums over D, two over Dv.
  const auto d = static_cast<double>(head_dim), dv = static_cast<double>(head_dim_v);
  return 2 * pairs() * (pass == Pass::forward ? d + dv : 3 * d + 2 * dv);
}

}  // namespace onchip::model
