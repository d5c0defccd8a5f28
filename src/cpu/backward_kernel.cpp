// The backward pass for one tile of keys, by recomputation from lse; queries are on SIMD lanes for the scores,
// dimensions for the gradients:
//
//   K, V tile → scratch of type T
//   for each block of query rows that sees the tile:
//     Q, dO → scratch, as they are and transposed
//     for each panel of lanes:
//       Sᵀ = K·Qᵀ, dPᵀ = V·dOᵀ [tile_n][panel]
//       Pᵀ = exp2(Sᵀ − lse), dSᵀ = Pᵀ∘(dPᵀ − delta)      in their places
//     dV += Pᵀ·dO, dK += dSᵀ·Q                             in scratch
//     dQ += dS·K                                           in the workspace
//   dK, dV → tensors
//
// Scratch of one thread (in L2): K, V, dK, dV [tile_n], Q, dO and their transposes [tile_m], P, dS [tile_n][tile_m].
// For each pair of tiles, 2·tile_m·D numbers come from the caller's tensors and tile_m·D of dQ go both ways.
//
// Hidden keys have P = dS = 0, which products with NaN or infinity would turn into NaN: where a row of K, V, Q or dO is
// not finite, the three gradient products of its tiles are done pair by pair instead.
#include "cpu/backward_kernel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward_kernel.cpp"
#include "cpu/simd/targets.hpp"
#include "hwy/foreach_target.h"
// foreach_target comes first: it includes this file once for each target.
#include "cpu/prefetch.hpp"
#include "cpu/row_order.hpp"
#include "cpu/simd/convert-inl.h"
#include "cpu/simd/gemm-inl.h"
#include "cpu/simd/probability-inl.h"
#include "cpu/simd/score-inl.h"
#include "cpu/simd/transpose-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {

template <typename T>
int64_t whole_vectors(int64_t n) {
  const int64_t vector = vector_lanes<T>();
  return (n + vector - 1) / vector * vector;
}

/// A thread's scratch, laid out.
template <typename T>
struct BackwardScratch {
  int64_t lanes;     // tile_m in whole vectors
  int64_t keys;      // tile_n in whole vectors
  int64_t k_stride;  // D in whole vectors
  int64_t v_stride;
  T *k, *v, *dk, *dv;           // [tile_n][stride]
  T *q, *dout;                  // [lanes][stride]
  T *q_columns, *dout_columns;  // [D or Dv][lanes]
  T *p, *ds;                    // [tile_n][lanes]
  T* through_softcap;           // [tile_n][lanes]: 1 − tanh²; null without softcap
  T* ds_rows;                   // [lanes][keys]: null without dbias
  LaneTable<T> table;

  BackwardScratch(const Problem& problem, const TileConfig& tile, WorkspaceCursor& cursor)
      : lanes(whole_vectors<T>(tile.tile_m)),
        keys(padded<T>(tile.tile_n)),
        k_stride(padded<T>(problem.head_dim)),
        v_stride(padded<T>(problem.head_dim_v)),
        k(cursor.take<T>(tile.tile_n * k_stride)),
        v(cursor.take<T>(tile.tile_n * v_stride)),
        dk(cursor.take<T>(tile.tile_n * k_stride)),
        dv(cursor.take<T>(tile.tile_n * v_stride)),
        q(cursor.take<T>(lanes * k_stride)),
        dout(cursor.take<T>(lanes * v_stride)),
        q_columns(cursor.take<T>(k_stride * lanes)),
        dout_columns(cursor.take<T>(v_stride * lanes)),
        p(cursor.take<T>(keys * lanes)),
        ds(cursor.take<T>(keys * lanes)),
        through_softcap(problem.softcap > 0 ? cursor.take<T>(tile.tile_n * lanes) : nullptr),
        ds_rows(problem.args.dbias.present() ? cursor.take<T>(lanes * keys) : nullptr),
        table(problem, cursor, static_cast<std::size_t>(lanes)) {}
};

/// One tile of keys at work.
template <typename T>
class BackwardTile {
 public:
  BackwardTile(const BackwardCall<T>& call, const KeyTile<T>& tile, WorkspaceCursor cursor)
      : call_(call),
        problem_(call.problem),
        args_(call.problem.args),
        tile_(tile),
        group_(call.problem.heads_per_kv()),
        units_(score_units(call.problem)),
        q_rows_(call.problem, call.problem.args.q),
        dout_rows_(call.problem, call.problem.args.dout),
        q_row_bytes_(call.problem.head_dim * static_cast<int64_t>(size_of(call.problem.args.q.dtype))),
        dout_row_bytes_(call.problem.head_dim_v * static_cast<int64_t>(size_of(call.problem.args.dout.dtype))),
        s_(call.problem, call.tile, cursor) {}

  void run() {
    const int64_t keys = tile_.keys.size();
    for (int64_t at = 0; at < keys * s_.k_stride; ++at) s_.dk[at] = 0;
    for (int64_t at = 0; at < keys * s_.v_stride; ++at) s_.dv[at] = 0;
    const KeyRange queries = tile_.sequence.mask.queries(tile_.keys, tile_.sequence.seqlen_q);
    if (!queries.empty()) {
      load_keys();
      const int64_t tile_m = call_.tile.tile_m;
      const int64_t end = queries.end * group_;
      for (int64_t row = queries.begin * group_; row < end; row += tile_m) {
        const int64_t left = end - row - tile_m;
        one_block(query_block(row, left < 0 ? tile_m + left : tile_m),
                  query_block(row + tile_m, left < 0        ? 0
                                            : left < tile_m ? left
                                                            : tile_m));
      }
    }
    for (int64_t key = 0; key < keys; ++key) hand_over(key);
  }

 private:
  QueryBlock query_block(int64_t first_row, int64_t rows) const {
    return {tile_.sequence, tile_.kv_head, group_, first_row, rows};
  }

  void load_keys() {
    const KeyRows k_rows(problem_, args_.k), v_rows(problem_, args_.v);
    const int64_t k_bytes = problem_.head_dim * static_cast<int64_t>(size_of(args_.k.dtype));
    const int64_t v_bytes = problem_.head_dim_v * static_cast<int64_t>(size_of(args_.v.dtype));
    keys_finite_ = true;
    for (int64_t j = tile_.keys.begin; j < tile_.keys.end; ++j) {
      if (j + kRowsAhead < tile_.keys.end) {
        prefetch_bytes(k_rows.at(tile_.sequence, j + kRowsAhead, tile_.kv_head), k_bytes);
        prefetch_bytes(v_rows.at(tile_.sequence, j + kRowsAhead, tile_.kv_head), v_bytes);
      }
      T* k = s_.k + (j - tile_.keys.begin) * s_.k_stride;
      T* v = s_.v + (j - tile_.keys.begin) * s_.v_stride;
      load_row(args_.k.dtype, k_rows.at(tile_.sequence, j, tile_.kv_head), problem_.head_dim, T(1), k);
      load_row(args_.v.dtype, v_rows.at(tile_.sequence, j, tile_.kv_head), problem_.head_dim_v, T(1), v);
      keys_finite_ = keys_finite_ && all_finite(k, problem_.head_dim) && all_finite(v, problem_.head_dim_v);
    }
  }

  static bool all_finite(const T* row, int64_t n) {
    const hn::ScalableTag<T> d;
    auto zero = hn::Zero(d);
    const int64_t vector = vector_lanes<T>();
    for (int64_t i = 0; i < whole_vectors<T>(n); i += vector)
      zero = hn::MulAdd(hn::Load(d, row + i), hn::Zero(d), zero);
    return hn::AllTrue(d, hn::Eq(zero, hn::Zero(d)));
  }

  /// Rows and columns of Q and dO. Rows without a key, and lanes past the last row, are 0.
  void load_queries(const QueryBlock& block, const T* lse_log2) {
    const int64_t lanes = whole_vectors<T>(block.rows);
    queries_finite_ = all_live_ = true;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      T* q = s_.q + lane * s_.k_stride;
      T* dout = s_.dout + lane * s_.v_stride;
      const bool live = lane < block.rows && !is_dead(lse_log2[lane]);
      if (live) {
        const int64_t i = block.query(lane), head = block.head(lane);
        load_row(args_.q.dtype, q_rows_.at(block.sequence, i, head), problem_.head_dim,
                 static_cast<T>(units_.query_factor), q);
        load_row(args_.dout.dtype, dout_rows_.at(block.sequence, i, head), problem_.head_dim_v, T(1), dout);
        queries_finite_ = queries_finite_ && all_finite(q, problem_.head_dim) && all_finite(dout, problem_.head_dim_v);
      } else {
        for (int64_t c = 0; c < s_.k_stride; ++c) q[c] = 0;
        for (int64_t c = 0; c < s_.v_stride; ++c) dout[c] = 0;
        all_live_ = all_live_ && lane >= block.rows;
      }
    }
    transpose(lanes, problem_.head_dim, s_.q, s_.k_stride, s_.q_columns, s_.lanes);
    transpose(lanes, problem_.head_dim_v, s_.dout, s_.v_stride, s_.dout_columns, s_.lanes);
  }

  /// Brings the rows of the next block closer while one is computed, a few lines at a time between the blocks of the
  /// products: rows a head's stride apart escape the hardware.
  class Prefetch {
   public:
    Prefetch(const BackwardTile& tile, const QueryBlock& block, int64_t steps)
        : tile_(tile), block_(block), per_step_((block.rows + steps - 1) / steps) {}

    void operator()() const {
      const int64_t stop = next_ + per_step_ < block_.rows ? next_ + per_step_ : block_.rows;
      for (; next_ < stop; ++next_) {
        const int64_t i = block_.query(next_), head = block_.head(next_);
        prefetch_bytes(tile_.q_rows_.at(block_.sequence, i, head), tile_.q_row_bytes_);
        prefetch_bytes(tile_.dout_rows_.at(block_.sequence, i, head), tile_.dout_row_bytes_);
      }
    }

   private:
    const BackwardTile& tile_;
    const QueryBlock& block_;
    mutable int64_t next_ = 0;
    const int64_t per_step_;
  };

  static bool is_dead(T lse_log2) { return lse_log2 == hn::GetLane(hn::Inf(hn::ScalableTag<T>())); }

  RowStatistics<T> statistics(const QueryBlock& block) const {
    const int64_t row = first_packed_row(problem_, tile_.sequence, tile_.kv_head) + block.first_row;
    return {call_.rows.lse_log2 + row, call_.rows.lse_log2_rest + row, call_.rows.delta + row};
  }

  /// Keys of the tile that some row of the block sees. dbias is added to in whole tiles.
  KeyRange keys_seen(const QueryBlock& block) const {
    if (tile_.dbias != nullptr) return tile_.keys;
    const KeyRange seen = block.keys_of_any();
    return {seen.begin > tile_.keys.begin ? seen.begin : tile_.keys.begin,
            seen.end < tile_.keys.end ? seen.end : tile_.keys.end};
  }

  /// `matrix` from the row of key j on.
  T* from_key(T* matrix, int64_t j, int64_t stride) const { return matrix + (j - tile_.keys.begin) * stride; }

  void one_block(const QueryBlock& block, const QueryBlock& next) {
    const int64_t lanes = whole_vectors<T>(block.rows);
    const KeyRange keys = keys_seen(block);
    if (keys.empty()) return;
    const RowStatistics<T> rows = statistics(block);
    s_.table.fill(problem_, block, lanes);
    MaskCover cover = MaskCover::all;
    if (s_.table.mask) cover = mask_cover(s_.table.mask, block.rows, keys.begin, keys.size());
    if (cover == MaskCover::none) return;
    load_queries(block, rows.lse_log2);
    const bool finite = keys_finite_ && queries_finite_;
    const bool hide_dead = !finite && !all_live_;
    if (hide_dead) hide_dead_rows(block, rows.lse_log2);
    const KeyRange seen_by_all = block.keys_of_all();
    const bool window_edge = hide_dead || seen_by_all.begin > keys.begin || seen_by_all.end < keys.end;
    const int64_t panel = kPanelVectors * vector_lanes<T>();
    const Prefetch prefetch(*this, next, (lanes + panel - 1) / panel * 2 * gemm_blocks(keys.size()));
    for (int64_t lane = 0; lane < lanes; lane += panel)
      one_panel(keys, lane, lanes - lane < panel ? lanes - lane : panel, window_edge, cover == MaskCover::some, rows,
                prefetch);
    if (!finite && args_.bias.present()) differentiate_by_pair(block, keys, rows);
    if (tile_.dbias != nullptr) add_bias_gradient(block);
    if (problem_.softcap > 0) multiply_tile(keys, lanes, s_.through_softcap, s_.ds);
    if (finite)
      add_products(block, keys);
    else
      add_pair_by_pair(block, keys);
  }

  /// Rows without a key get an empty window, so that NaN in a key does not reach them.
  void hide_dead_rows(const QueryBlock& block, const T* lse_log2) {
    for (int64_t lane = 0; lane < block.rows; ++lane)
      if (is_dead(lse_log2[lane])) s_.table.key_begin[lane] = s_.table.key_end[lane] = 0;
  }

  /// P and dS of one panel of lanes.
  void one_panel(KeyRange keys, int64_t lane, int64_t lanes, bool window_edge, bool mask_edge,
                 const RowStatistics<T>& rows, const Prefetch& prefetch) {
    T* p = from_key(s_.p, keys.begin, s_.lanes) + lane;
    T* ds = from_key(s_.ds, keys.begin, s_.lanes) + lane;
    T* slope = s_.through_softcap ? from_key(s_.through_softcap, keys.begin, s_.lanes) + lane : nullptr;
    gemm<T>(GemmStart::zero, keys.size(), lanes, problem_.head_dim,
            {from_key(s_.k, keys.begin, s_.k_stride), s_.k_stride, 1, s_.q_columns + lane, s_.lanes, p, s_.lanes,
             nullptr, kScoreRun},
            prefetch);
    score_tile<T>(problem_, s_.table, {p, s_.lanes, keys.begin, keys.size(), lane, lanes}, window_edge, mask_edge,
                  slope);
    gemm<T>(GemmStart::zero, keys.size(), lanes, problem_.head_dim_v,
            {from_key(s_.v, keys.begin, s_.v_stride), s_.v_stride, 1, s_.dout_columns + lane, s_.lanes, ds, s_.lanes,
             nullptr},
            prefetch);
    differentiate_tile<T>(keys.size(), lanes, units_.log2_unit,
                          {rows.lse_log2 + lane, rows.lse_log2_rest + lane, rows.delta + lane}, p, ds, s_.lanes);
  }

  HWY_NOINLINE void multiply_tile(KeyRange keys, int64_t lanes, const T* HWY_RESTRICT factor, T* HWY_RESTRICT tile) {
    const hn::ScalableTag<T> d;
    for (int64_t key = keys.begin - tile_.keys.begin; key < keys.end - tile_.keys.begin; ++key)
      for (int64_t lane = 0; lane < lanes; lane += vector_lanes<T>()) {
        const int64_t at = key * s_.lanes + lane;
        const auto old = hn::Load(d, tile + at);
        // Hidden pairs stay 0 where the factor is NaN.
        const auto product = hn::Mul(old, hn::Load(d, factor + at));
        hn::Store(hn::IfThenElse(hn::Eq(old, hn::Zero(d)), old, product), d, tile + at);
      }
  }

  bool sees(int64_t lane, int64_t j) const {
    const bool in_window = s_.table.key_begin[lane] <= j && j < s_.table.key_end[lane];
    return in_window && (s_.table.mask == nullptr || s_.table.mask[lane][j] != std::byte{0});
  }

  /// A bias of −∞ gives a key that is seen P = 0, but not dS = 0 where dP is NaN or infinite.
  HWY_NOINLINE void differentiate_by_pair(const QueryBlock& block, KeyRange keys, const RowStatistics<T>& rows) {
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const int64_t key = j - tile_.keys.begin;
      for (int64_t lane = 0; lane < block.rows; ++lane) {
        const int64_t at = key * s_.lanes + lane;
        if (s_.p[at] != 0 || !sees(lane, j)) continue;
        T dp = 0;
        for (int64_t c = 0; c < problem_.head_dim_v; ++c)
          dp += s_.dout[lane * s_.v_stride + c] * s_.v[key * s_.v_stride + c];
        s_.ds[at] = s_.p[at] * (dp - rows.delta[lane]);
      }
    }
  }

  void add_products(const QueryBlock& block, KeyRange keys) {
    const T* p = from_key(s_.p, keys.begin, s_.lanes);
    const T* ds = from_key(s_.ds, keys.begin, s_.lanes);
    const int64_t k_lanes = whole_vectors<T>(problem_.head_dim), v_lanes = whole_vectors<T>(problem_.head_dim_v);
    if (call_.dv.present())
      gemm<T>(GemmStart::add, keys.size(), v_lanes, block.rows,
              {p, s_.lanes, 1, s_.dout, s_.v_stride, from_key(s_.dv, keys.begin, s_.v_stride), s_.v_stride, nullptr});
    if (call_.dk.present())
      gemm<T>(GemmStart::add, keys.size(), k_lanes, block.rows,
              {ds, s_.lanes, 1, s_.q, s_.k_stride, from_key(s_.dk, keys.begin, s_.k_stride), s_.k_stride, nullptr});
    if (tile_.dq != nullptr)
      gemm<T>(GemmStart::add, block.rows, k_lanes, keys.size(),
              {ds, 1, s_.lanes, from_key(s_.k, keys.begin, s_.k_stride), s_.k_stride,
               tile_.dq + block.first_row * s_.k_stride, s_.k_stride, nullptr});
  }

  /// add_products() without the pairs that are hidden.
  HWY_NOINLINE void add_pair_by_pair(const QueryBlock& block, KeyRange keys) {
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const int64_t key = j - tile_.keys.begin;
      for (int64_t lane = 0; lane < block.rows; ++lane) {
        if (!sees(lane, j)) continue;
        const T p = s_.p[key * s_.lanes + lane], ds = s_.ds[key * s_.lanes + lane];
        add_row(p, s_.dout + lane * s_.v_stride, problem_.head_dim_v, s_.dv + key * s_.v_stride);
        add_row(ds, s_.q + lane * s_.k_stride, problem_.head_dim, s_.dk + key * s_.k_stride);
        if (tile_.dq != nullptr)
          add_row(ds, s_.k + key * s_.k_stride, problem_.head_dim, tile_.dq + (block.first_row + lane) * s_.k_stride);
      }
    }
  }

  static void add_row(T factor, const T* row, int64_t n, T* sum) {
    for (int64_t c = 0; c < n; ++c) sum[c] += factor * row[c];
  }

  /// dbias += dS, brought to rows of keys.
  HWY_NOINLINE void add_bias_gradient(const QueryBlock& block) {
    const hn::ScalableTag<T> d;
    const bool per_head = args_.dbias.shape[1] > 1;
    transpose(tile_.keys.size(), whole_vectors<T>(block.rows), s_.ds, s_.lanes, s_.ds_rows, s_.keys);
    for (int64_t lane = 0; lane < block.rows; ++lane) {
      const int64_t head = per_head ? block.head(lane) - tile_.kv_head * group_ : 0;
      T* sum = tile_.dbias + (head * tile_.rows_of_dbias + block.query(lane)) * s_.keys;
      const T* row = s_.ds_rows + lane * s_.keys;
      int64_t key = 0;
      for (; key + vector_lanes<T>() <= tile_.keys.size(); key += vector_lanes<T>())
        hn::Store(hn::Add(hn::Load(d, sum + key), hn::Load(d, row + key)), d, sum + key);
      for (; key < tile_.keys.size(); ++key) sum[key] += row[key];
    }
  }

  void hand_over(int64_t key) const {
    const int64_t j = tile_.keys.begin + key;
    if (call_.dk.present())
      call_.dk.put(tile_.sequence, j, tile_.kv_head, s_.dk + key * s_.k_stride, static_cast<T>(units_.product_factor));
    if (call_.dv.present()) call_.dv.put(tile_.sequence, j, tile_.kv_head, s_.dv + key * s_.v_stride, T(1));
  }

  const BackwardCall<T>& call_;
  const Problem& problem_;
  const Attention& args_;
  const KeyTile<T>& tile_;
  const int64_t group_;
  const ScoreUnits units_;
  const QueryRows q_rows_, dout_rows_;
  const int64_t q_row_bytes_, dout_row_bytes_;
  BackwardScratch<T> s_;
  bool keys_finite_ = true;
  bool queries_finite_ = true;
  bool all_live_ = true;  // no row of the block is without a key
};

template <typename T>
std::size_t scratch_bytes(const Problem& problem, const TileConfig& tile) {
  WorkspaceCursor cursor;
  BackwardScratch<T>(problem, tile, cursor);
  return cursor.used_bytes();
}

BackwardShape backward_shape_f32() { return {vector_lanes<float>(), kPanelVectors * vector_lanes<float>()}; }
BackwardShape backward_shape_f64() { return {vector_lanes<double>(), kPanelVectors * vector_lanes<double>()}; }

std::size_t backward_scratch_f32(const Problem& problem, const TileConfig& tile) {
  return scratch_bytes<float>(problem, tile);
}
std::size_t backward_scratch_f64(const Problem& problem, const TileConfig& tile) {
  return scratch_bytes<double>(problem, tile);
}

void backward_tile_f32(const BackwardCall<float>& call, const KeyTile<float>& tile, std::byte* scratch) {
  BackwardTile<float>(call, tile, WorkspaceCursor({scratch, 0})).run();
}
void backward_tile_f64(const BackwardCall<double>& call, const KeyTile<double>& tile, std::byte* scratch) {
  BackwardTile<double>(call, tile, WorkspaceCursor({scratch, 0})).run();
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onchip::cpu {

HWY_EXPORT(backward_shape_f32);
HWY_EXPORT(backward_shape_f64);
HWY_EXPORT(backward_scratch_f32);
HWY_EXPORT(backward_scratch_f64);
HWY_EXPORT(backward_tile_f32);
HWY_EXPORT(backward_tile_f64);

template <>
BackwardShape backward_shape<float>() {
  return HWY_DYNAMIC_DISPATCH(backward_shape_f32)();
}
template <>
BackwardShape backward_shape<double>() {
  return HWY_DYNAMIC_DISPATCH(backward_shape_f64)();
}

template <>
std::size_t backward_scratch_bytes<float>(const Problem& problem, const TileConfig& tile) {
  return HWY_DYNAMIC_DISPATCH(backward_scratch_f32)(problem, tile);
}
template <>
std::size_t backward_scratch_bytes<double>(const Problem& problem, const TileConfig& tile) {
  return HWY_DYNAMIC_DISPATCH(backward_scratch_f64)(problem, tile);
}

template <>
void backward_tile<float>(const BackwardCall<float>& call, const KeyTile<float>& tile, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(backward_tile_f32)(call, tile, scratch);
}
template <>
void backward_tile<double>(const BackwardCall<double>& call, const KeyTile<double>& tile, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(backward_tile_f64)(call, tile, scratch);
}

}  // namespace onchip::cpu
#endif  // HWY_ONCE
