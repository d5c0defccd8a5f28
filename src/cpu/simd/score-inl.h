// From products to scores: softcap, bias, ALiBi, mask, window, each a pass over a tile Sᵀ [key][lane] that runs only
// where the problem has the feature and the tile needs it.
//
// Products come in as they are (see ScoreUnits); the first of softcap, bias and ALiBi that the problem has turns them
// into scores. Without any of them the tile keeps products, and log2_unit says so to the softmax. What a query may not
// see is overwritten with −∞ last, whatever was computed for it.
#if defined(ONCHIP_CPU_SIMD_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONCHIP_CPU_SIMD_SCORE_INL_H_
#undef ONCHIP_CPU_SIMD_SCORE_INL_H_
#else
#define ONCHIP_CPU_SIMD_SCORE_INL_H_
#endif

#include <cstdint>

#include "cpu/query_block.hpp"
#include "cpu/simd/convert-inl.h"
#include "cpu/simd/exp2-inl.h"
#include "cpu/simd/targets.hpp"
#include "cpu/simd/transpose-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A tile of scores: keys key_begin… in rows, lanes lane_begin… of the block in columns.
template <typename T>
struct ScoreTile {
  T* HWY_RESTRICT scores;  // [keys][lanes], rows aligned to vectors
  int64_t stride;
  int64_t key_begin;
  int64_t keys;
  int64_t lane_begin;
  int64_t lanes;  // a multiple of the vector
};

/// −∞
template <class D>
HWY_INLINE auto hidden_score(D d) {
  return hn::Neg(hn::Inf(d));
}

/// Which entries of the mask are true in (part of) a tile.
enum class MaskCover { none, some, all };

/// s = cap · tanh(factor/cap · s); where asked for, derivative = 1 − tanh², laid out as the scores.
template <typename T>
HWY_NOINLINE void softcap_tile(const ScoreTile<T>& tile, T softcap, T factor, T* HWY_RESTRICT derivative) {
  const hn::ScalableTag<T> d;
  const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
  const auto cap = hn::Set(d, softcap);
  const auto inner = hn::Set(d, factor / softcap);
  auto slope = hn::Zero(d);
  for (int64_t key = 0; key < tile.keys; ++key) {
    for (int64_t lane = 0; lane < tile.lanes; lane += vector) {
      const int64_t at = key * tile.stride + lane;
      const auto t = tanh(d, hn::Mul(inner, hn::Load(d, tile.scores + at)), slope);
      hn::Store(hn::Mul(cap, t), d, tile.scores + at);
      if (derivative != nullptr) hn::Store(slope, d, derivative + at);
    }
  }
}

/// Rows of bias or mask, stored [lane][key], brought to the order of the tile a block at a time. combine(d, scores,
/// values) gives the new scores.
template <typename T, class Combine>
HWY_INLINE void combine_rows(const ScoreTile<T>& tile, const std::byte* const* rows, DType dtype,
                             const Combine& combine) {
  constexpr int64_t kKeys = 64;
  const hn::ScalableTag<T> d;
  const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
  const int64_t element = dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : dtype == DType::boolean ? 1 : 2;
  HWY_ALIGN T by_lane[hn::MaxLanes(hn::ScalableTag<T>()) * kKeys];
  HWY_ALIGN T by_key[hn::MaxLanes(hn::ScalableTag<T>()) * kKeys];
  for (int64_t lane = 0; lane < tile.lanes; lane += vector) {
    const std::byte* const* lane_rows = rows + tile.lane_begin + lane;
    for (int64_t first = 0; first < tile.keys; first += kKeys) {
      const int64_t keys = tile.keys - first < kKeys ? tile.keys - first : kKeys;
      for (int64_t v = 0; v < vector; ++v) {
        load_row(dtype, lane_rows[v] + (tile.key_begin + first) * element, keys, T(1), by_lane + v * kKeys);
      }
      transpose(vector, keys, by_lane, kKeys, by_key, vector);
      for (int64_t key = 0; key < keys; ++key) {
        T* scores = tile.scores + (first + key) * tile.stride + lane;
        hn::Store(combine(d, hn::Load(d, scores), hn::Load(d, by_key + key * vector)), d, scores);
      }
    }
  }
}

/// s = factor · s + bias
template <typename T>
HWY_NOINLINE void add_bias(const ScoreTile<T>& tile, const std::byte* const* rows, DType dtype, T factor) {
  combine_rows(tile, rows, dtype, [factor](auto d, auto scores, auto bias) HWY_ATTR {
    return hn::MulAdd(hn::Set(d, factor), scores, bias);
  });
}

template <typename T>
HWY_NOINLINE void apply_mask(const ScoreTile<T>& tile, const std::byte* const* rows) {
  combine_rows(tile, rows, DType::boolean, [](auto d, auto scores, auto mask) HWY_ATTR {
    return hn::IfThenElse(hn::Eq(mask, hn::Zero(d)), hidden_score(d), scores);
  });
}

/// s = factor · s − slope · |position − key|
template <typename T>
HWY_NOINLINE void subtract_alibi(const ScoreTile<T>& tile, const LaneTable<T>& table, T factor) {
  const hn::ScalableTag<T> d;
  const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN T relative[hn::MaxLanes(hn::ScalableTag<T>())];
  for (int64_t lane = 0; lane < tile.lanes; lane += vector) {
    const int64_t first = tile.lane_begin + lane;
    for (int64_t v = 0; v < vector; ++v) relative[v] = static_cast<T>(table.position[first + v] - tile.key_begin);
    const auto position = hn::Load(d, relative);
    const auto slope = hn::LoadU(d, table.slope + first);
    for (int64_t key = 0; key < tile.keys; ++key) {
      T* scores = tile.scores + key * tile.stride + lane;
      const auto distance = hn::Abs(hn::Sub(position, hn::Set(d, static_cast<T>(key))));
      const auto score = hn::Mul(hn::Set(d, factor), hn::Load(d, scores));
      hn::Store(hn::NegMulAdd(slope, distance, score), d, scores);
    }
  }
}

/// s = −∞ for keys outside [key_begin, key_end) of the lane.
template <typename T>
HWY_NOINLINE void apply_window(const ScoreTile<T>& tile, const LaneTable<T>& table) {
  const hn::ScalableTag<T> d;
  const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
  const auto hidden = hidden_score(d);
  HWY_ALIGN T low[hn::MaxLanes(hn::ScalableTag<T>())];
  HWY_ALIGN T high[hn::MaxLanes(hn::ScalableTag<T>())];
  const auto in_tile = [&tile](int64_t key) HWY_ATTR {
    const int64_t relative = key - tile.key_begin;
    return static_cast<T>(relative < 0 ? 0 : relative > tile.keys ? tile.keys : relative);
  };
  for (int64_t lane = 0; lane < tile.lanes; lane += vector) {
    for (int64_t v = 0; v < vector; ++v) {
      low[v] = in_tile(table.key_begin[tile.lane_begin + lane + v]);
      high[v] = in_tile(table.key_end[tile.lane_begin + lane + v]);
    }
    const auto begin = hn::Load(d, low);
    const auto end = hn::Load(d, high);
    for (int64_t key = 0; key < tile.keys; ++key) {
      T* scores = tile.scores + key * tile.stride + lane;
      const auto k = hn::Set(d, static_cast<T>(key));
      const auto seen = hn::And(hn::Ge(k, begin), hn::Lt(k, end));
      hn::Store(hn::IfThenElse(seen, hn::Load(d, scores), hidden), d, scores);
    }
  }
}

/// Whether the mask leaves none, some or all of keys × lanes. Lanes that share a row (a broadcast mask) are read once.
HWY_INLINE MaskCover mask_cover(const std::byte* const* rows, int64_t lanes, int64_t key_begin, int64_t keys) {
  const hn::ScalableTag<uint8_t> d;
  const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
  bool any_true = false, any_false = false;
  const std::byte* previous = nullptr;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    if (rows[lane] == previous) continue;
    previous = rows[lane];
    const auto* row = reinterpret_cast<const uint8_t*>(previous + key_begin);
    int64_t key = 0;
    for (; key + vector <= keys; key += vector) {
      const auto is_false = hn::Eq(hn::LoadU(d, row + key), hn::Zero(d));
      any_true = any_true || !hn::AllTrue(d, is_false);
      any_false = any_false || !hn::AllFalse(d, is_false);
    }
    for (; key < keys; ++key) (row[key] != 0 ? any_true : any_false) = true;
    if (any_true && any_false) return MaskCover::some;
  }
  return any_false ? MaskCover::none : MaskCover::all;
}

/// Every term of the problem, on products of queries multiplied by query_factor. `window_edge`: some key of the tile is
/// hidden from some lane by the causal mask or the window; `mask_edge`: the same for the mask. With a softcap,
/// `derivative` (null, or laid out as the scores) gets 1 − tanh².
template <typename T>
HWY_NOINLINE void score_tile(const Problem& problem, const LaneTable<T>& table, const ScoreTile<T>& tile,
                             bool window_edge, bool mask_edge, T* derivative) {
  auto factor = static_cast<T>(score_units(problem).product_factor);
  if (problem.softcap > 0) {
    softcap_tile(tile, static_cast<T>(problem.softcap), factor, derivative);
    factor = 1;
  }
  if (table.bias) {
    add_bias(tile, table.bias, problem.args.bias.dtype, factor);
    factor = 1;
  }
  if (table.slope) subtract_alibi(tile, table, factor);
  if (mask_edge) apply_mask(tile, table.mask);
  if (window_edge) apply_window(tile, table);
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONCHIP_CPU_SIMD_SCORE_INL_H_
