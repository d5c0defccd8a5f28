// Writes a tile of o: through shared memory, so that global memory sees whole rows.
#pragma once

#include <cstdint>

#include "cuda/device/attn/scores.cuh"
#include "cuda/device/tile/load_tile.cuh"

namespace onchip::cuda {

/// kBytes from shared to global memory.
template <int kBytes>
__forceinline__ void store_unit(char* target, const char* s_source) {
  if constexpr (kBytes == 16)
    *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(s_source);
  else if constexpr (kBytes == 8)
    *reinterpret_cast<uint2*>(target) = *reinterpret_cast<const uint2*>(s_source);
  else if constexpr (kBytes == 4)
    *reinterpret_cast<std::uint32_t*>(target) = *reinterpret_cast<const std::uint32_t*>(s_source);
  else
    *reinterpret_cast<std::uint16_t*>(target) = *reinterpret_cast<const std::uint16_t*>(s_source);
}

/// Two neighbours of a row of the tile s_o, rounded to the output type.
template <PortableConfig kConfig>
__forceinline__ void stage_pair(char* s_o, int row, int column, float low, float high) {
  char* target = s_o + row * kConfig.o_row_bytes() + column * element_bytes(kConfig.o_type);
  if constexpr (kConfig.o_type == Element::f32)
    *reinterpret_cast<float2*>(target) = make_float2(low, high);
  else
    *reinterpret_cast<std::uint32_t*>(target) = pack<kConfig.o_type>(low, high);
}

/// acc_o, each row times factor[row], into the tile s_o.
template <PortableConfig kConfig, int kValueTiles>
__forceinline__ void stage_output(char* s_o, const float (&acc_o)[Scores<kConfig>::kRowTiles][kValueTiles][4],
                                  const float (&factor)[Scores<kConfig>::kRows]) {
  const int thread = fresh_thread_index();
#pragma unroll
  for (int r = 0; r < Scores<kConfig>::kRows; ++r)
#pragma unroll
    for (int n = 0; n < kValueTiles; ++n)
      stage_pair<kConfig>(s_o, Scores<kConfig>::tile_row(thread, r), Scores<kConfig>::tile_column(thread, n, 0),
                          acc_o[r / 2][n][r % 2 * 2] * factor[r], acc_o[r / 2][n][r % 2 * 2 + 1] * factor[r]);
}

/// The staged tile's rows and first num_columns columns to where `rows` says.
template <PortableConfig kConfig, typename Rows>
__forceinline__ void store_output(const char* s_o, const Rows& rows, int num_rows, int num_columns) {
  constexpr int kPerUnit = kConfig.o_copy_bytes / element_bytes(kConfig.o_type);
  constexpr int kUnits = kConfig.padded_head_dim_v() / kPerUnit;
  for_each_unit<kConfig.tile_m, kUnits, kConfig.threads()>([&](int row, int unit) {
    if (row < num_rows && unit * kPerUnit < num_columns)
      store_unit<kConfig.o_copy_bytes>(const_cast<char*>(rows.address(row)) + unit * kConfig.o_copy_bytes,
                                       s_o + row * kConfig.o_row_bytes() + unit * kConfig.o_copy_bytes);
  });
}

}  // namespace onchip::cuda
