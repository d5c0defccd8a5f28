// Writes the rows of a consumer warpgroup: o from registers, 32 contiguous bytes of a row at a time, and lse.
#pragma once

#include "cuda/device/attn/fwd_sm90_shared.cuh"
#include "cuda/device/attn/row_state.cuh"
#include "cuda/device/attn/scores.cuh"
#include "cuda/device/tile/element_conversion.cuh"

namespace onchip::cuda {

template <FwdSm90Config kConfig>
class FwdSm90Epilogue {
 public:
  __forceinline__ FwdSm90Epilogue(const PortableParams& p, const WorkTile& tile)
      : p_(p), tile_(tile), thread_(fresh_thread_index()) {}

  /// Stores o and lse of the rows that exist. Whether all of them are finite; the same for all lanes of a warp.
  template <typename Softmax, int kCount>
  __forceinline__ bool store(const Softmax& softmax, const float (&acc_o)[kCount]) const {
    const RowState state[2] = {softmax.state(0), softmax.state(1)};
    const float factor[2] = {close(state[0], 0), close(state[1], 1)};
    std::uint32_t spoiled[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < kCount / 4; n += 2) {
      std::uint32_t pairs[2][2];  // of rows; of blocks n and n + 1 of 8 columns
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float* two = acc_o + 4 * (n + i) + 2 * r;
          pairs[r][i] = pack<kElement>(two[0] * factor[r], two[1] * factor[r]);
          spoiled[r] =
              kElement == Element::f16 ? spoil_f16(spoiled[r], pairs[r][i]) : spoil_bf16(spoiled[r], pairs[r][i]);
        }
      write(n, pairs);
    }
    bool finite = true;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      finite = finite && (Scores<kAttention>::tile_row(thread_, r) >= tile_.num_rows ||
                          ((spoiled[r] & 0x7FFF7FFF) == 0 && state[r].sum < kInfinity));
    return __all_sync(0xFFFFFFFF, finite);
  }

  /// The same for a tile whose rows see no key.
  __forceinline__ void store_empty() const {
    const QueryRows<kAttention> o_rows(tile_, p_.o, p_.o_layout), lse_rows(tile_, p_.lse, p_.lse_layout);
#pragma unroll 1
    for (int r = 0; r < 2; ++r) {
      const int row = Scores<kAttention>::tile_row(thread_, r);
      if (row >= tile_.num_rows) continue;
      if (p_.lse != nullptr && thread_ % 4 == 0)
        *reinterpret_cast<float*>(const_cast<char*>(lse_rows.address(row))) = sink() * kLn2;
#pragma unroll 1
      for (int column = thread_ % 4 * 8; column < kAttention.head_dim_v; column += 32)
        *reinterpret_cast<uint4*>(const_cast<char*>(o_rows.address(row)) + column * 2) = uint4{0, 0, 0, 0};
    }
  }

 private:
  static constexpr PortableConfig kAttention = kConfig.attention;
  static constexpr Element kElement = kAttention.compute_type();

  /// The tile's extra logit as an exponent of 2, −∞: none.
  __forceinline__ float sink() const {
    if (p_.sink == nullptr) return -kInfinity;
    return kLog2E * *reinterpret_cast<const float*>(p_.sink + p_.sink_layout.offset(0, 0, tile_.first_head));
  }

  /// What row r of o is to be multiplied by; stores its lse.
  __forceinline__ float close(const RowState& state, int r) const {
    const QueryRows<kAttention> lse_rows(tile_, p_.lse, p_.lse_layout);
    const int row = Scores<kAttention>::tile_row(thread_, r);
    const ClosedRow closed = close_row(state, sink());
    if (row < tile_.num_rows && p_.lse != nullptr && thread_ % 4 == 0)
      *reinterpret_cast<float*>(const_cast<char*>(lse_rows.address(row))) = closed.lse;
    return closed.factor;
  }

  /// Neighbouring lanes trade blocks, so that each has 4 columns in a row, and the quad 16.
  __forceinline__ void write(int n, const std::uint32_t (&pairs)[2][2]) const {
    const QueryRows<kAttention> o_rows(tile_, p_.o, p_.o_layout);
    const bool odd = thread_ % 2 != 0;
    const int column = n * 8 + (odd ? 8 : 0) + thread_ % 4 / 2 * 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = Scores<kAttention>::tile_row(thread_, r);
      const std::uint32_t traded = __shfl_xor_sync(0xFFFFFFFF, odd ? pairs[r][0] : pairs[r][1], 1);
      if (row < tile_.num_rows && column < kAttention.head_dim_v)
        *reinterpret_cast<uint2*>(const_cast<char*>(o_rows.address(row)) + column * 2) =
            odd ? uint2{traded, pairs[r][1]} : uint2{pairs[r][0], traded};
    }
  }

  const PortableParams& p_;
  const WorkTile& tile_;
  const int thread_;
};

}  // namespace onchip::cuda
