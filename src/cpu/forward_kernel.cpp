// The forward pass for one block of query rows, with queries on SIMD lanes:
//
//   for each tile of keys that some row sees:            bytes moved
//     for each panel of lanes:
//       Sᵀ = K·Qᵀ [tile_n][panel]                        stays in L1
//       scores, online softmax: Sᵀ becomes Pᵀ
//       Oᵀ [Dv][panel] = factor·Oᵀ + Vᵀ·Pᵀ
//     meanwhile the next K, V tile → scratch of type T   tile_n·(D + Dv) from memory or L3, once for each block
//   o = Oᵀ transposed / l,  lse = m + ln l
//
// Scratch of one thread (in L2): Qᵀ [D][lanes], Oᵀ [Dv][lanes], two tiles of K [tile_n][D] and V [tile_n][Dv], one
// panel of S, the statistics of each lane. K is never transposed and no sum runs across lanes. Tiles start at multiples
// of tile_n and each lane is by itself, so a row's bits depend on tile_n alone.
//
// A key or value that is NaN or infinite must reach only the rows that see it. Scores of hidden keys are overwritten,
// but 0 · NaN in Vᵀ·Pᵀ would spread: rows of V that are not finite are zeroed in scratch and added apart, only to lanes
// that see them.
#include "cpu/forward_kernel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward_kernel.cpp"
#include "cpu/simd/targets.hpp"
#include "hwy/foreach_target.h"
// foreach_target comes first: it includes this file once for each target.
#include "cpu/finish_rows.hpp"
#include "cpu/prefetch.hpp"
#include "cpu/simd/convert-inl.h"
#include "cpu/simd/gemm-inl.h"
#include "cpu/simd/score-inl.h"
#include "cpu/simd/softmax-inl.h"
#include "cpu/simd/transpose-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {

template <typename T>
int64_t pad(int64_t n) {
  const int64_t vector = vector_lanes<T>();
  return (n + vector - 1) / vector * vector;
}

/// Keys and values in scratch.
template <typename T>
struct KeyTile {
  T* k;                 // [tile_n][k_stride]
  T* v;                 // [tile_n][v_stride]
  int64_t* not_finite;  // [tile_n]: keys whose V is not finite; it is zeroed in v
  int64_t num_not_finite;
  KeyRange keys;
  MaskCover cover;
};

/// A thread's scratch, laid out.
template <typename T>
struct ForwardScratch {
  int64_t lanes;     // tile_m in whole vectors
  int64_t panel;     // lanes of one panel
  int64_t k_stride;  // D in whole vectors
  int64_t v_stride;
  T* q;                 // [D][lanes]
  T* o;                 // [Dv][lanes]
  KeyTile<T> tiles[2];  // the one at work and the next
  T* scores;            // [tile_n][panel]
  T* rows;              // [vector][k_stride or v_stride]: rows of q or o on their way through transposition
  T* seen;              // [panel]
  bool* started;        // [panels]: whether the panel's o holds anything
  SoftmaxState<T> softmax;
  LaneTable<T> table;

  static std::size_t bytes(const Problem& problem, const TileConfig& tile) {
    const int64_t n = pad<T>(tile.tile_m), vector = vector_lanes<T>(), panel = kPanelVectors * vector;
    const int64_t kd = pad<T>(problem.head_dim), vd = pad<T>(problem.head_dim_v), tile_n = tile.tile_n;
    return aligned_bytes<T>(padded_rows(problem.head_dim) * n) + aligned_bytes<T>(padded_rows(problem.head_dim_v) * n) +
           2 * (aligned_bytes<T>(tile_n * kd) + aligned_bytes<T>(tile_n * vd) + aligned_bytes<int64_t>(tile_n)) +
           aligned_bytes<T>(tile_n * panel) + aligned_bytes<T>(vector * (kd > vd ? kd : vd)) + aligned_bytes<T>(panel) +
           aligned_bytes<bool>(n / vector) + 3 * aligned_bytes<T>(n) + LaneTable<T>::bytes(n);
  }

  ForwardScratch(const Problem& problem, const TileConfig& tile, WorkspaceCursor cursor)
      : lanes(pad<T>(tile.tile_m)),
        panel(kPanelVectors * vector_lanes<T>()),
        k_stride(pad<T>(problem.head_dim)),
        v_stride(pad<T>(problem.head_dim_v)),
        q(cursor.take<T>(padded_rows(problem.head_dim) * lanes)),
        o(cursor.take<T>(padded_rows(problem.head_dim_v) * lanes)),
        tiles{take_tile(cursor, tile.tile_n), take_tile(cursor, tile.tile_n)},
        scores(cursor.take<T>(tile.tile_n * panel)),
        rows(cursor.take<T>(vector_lanes<T>() * (k_stride > v_stride ? k_stride : v_stride))),
        seen(cursor.take<T>(panel)),
        started(cursor.take<bool>(lanes / vector_lanes<T>())),
        softmax{cursor.take<T>(lanes), cursor.take<T>(lanes), cursor.take<T>(lanes)},
        table(problem, cursor, lanes) {}

 private:
  KeyTile<T> take_tile(WorkspaceCursor& cursor, int64_t tile_n) const {
    T* k = cursor.take<T>(tile_n * k_stride);
    T* v = cursor.take<T>(tile_n * v_stride);
    return {k, v, cursor.take<int64_t>(tile_n), 0, {0, 0}, MaskCover::none};
  }

  /// Transposition works in whole blocks.
  static int64_t padded_rows(int64_t dims) {
    return (dims + kTransposeBlock<T> - 1) / kTransposeBlock<T> * kTransposeBlock<T>;
  }
};

/// One block at work.
template <typename T>
class ForwardBlock {
 public:
  ForwardBlock(const Problem& problem, const TileConfig& tile, const QueryBlock& block, const LargeLogits& large,
               std::byte* scratch)
      : problem_(problem),
        block_(block),
        large_(large),
        tile_n_(tile.tile_n),
        units_(score_units(problem)),
        s_(problem, tile, WorkspaceCursor({scratch, 0})),
        lanes_(pad<T>(block.rows)),
        k_rows_(problem, problem.args.k),
        v_rows_(problem, problem.args.v),
        k_row_bytes_(problem.head_dim * static_cast<int64_t>(size_of(problem.args.k.dtype))),
        v_row_bytes_(problem.head_dim_v * static_cast<int64_t>(size_of(problem.args.v.dtype))),
        k_scales_(problem, problem.args.k_scale, problem.k_scale_kind),
        v_scales_(problem, problem.args.v_scale, problem.v_scale_kind) {}

  void run() {
    s_.table.fill(problem_, block_, lanes_);
    reset_softmax(s_.softmax, lanes_);
    for (int64_t panel = 0; panel * s_.panel < lanes_; ++panel) s_.started[panel] = false;
    load_queries();
    KeyTile<T>*current = &s_.tiles[0], *next = &s_.tiles[1];
    int64_t begin = find_tile(block_.keys_of_any().begin / tile_n_ * tile_n_, *current);
    TileLoader(*this, *current, 1).finish();
    while (!current->keys.empty()) {
      begin = find_tile(begin, *next);
      one_tile(*current, *next);
      KeyTile<T>* done = current;
      current = next;
      next = done;
    }
    store_results();
  }

 private:
  /// Qᵀ; lanes past the last row are 0.
  void load_queries() {
    const QueryRows q_rows(problem_, problem_.args.q);
    const int64_t vector = vector_lanes<T>();
    const auto factor = static_cast<T>(units_.query_factor);
    for (int64_t first = 0; first < lanes_; first += vector) {
      for (int64_t v = 0; v < vector; ++v) {
        T* row = s_.rows + v * s_.k_stride;
        const int64_t lane = first + v;
        if (lane < block_.rows) {
          const std::byte* query = q_rows.at(block_.sequence, block_.query(lane), block_.head(lane));
          load_row(problem_.args.q.dtype, query, problem_.head_dim, factor, row);
        } else {
          for (int64_t d = 0; d < s_.k_stride; ++d) row[d] = 0;
        }
      }
      transpose(vector, problem_.head_dim, s_.rows, s_.k_stride, s_.q + first, s_.lanes);
    }
  }

  /// Describes the first tile from `begin` on of which some row sees a key, or an empty one. Returns where the search
  /// for the tile after it begins.
  int64_t find_tile(int64_t begin, KeyTile<T>& tile) const {
    const KeyRange seen = block_.keys_of_any();
    for (; begin < seen.end; begin += tile_n_) {
      const int64_t end = begin + tile_n_ < seen.end ? begin + tile_n_ : seen.end;
      tile.keys = {begin > seen.begin ? begin : seen.begin, end};
      tile.cover = MaskCover::all;
      if (s_.table.mask) tile.cover = mask_cover(s_.table.mask, block_.rows, tile.keys.begin, tile.keys.size());
      if (tile.cover != MaskCover::none) return begin + tile_n_;
    }
    tile.keys = {seen.end, seen.end};
    return begin;
  }

  /// Copies or converts the next tile a few rows at a time, between the blocks of the present tile's products: they
  /// hide how long the rows take to arrive. Rows a head's stride apart escape the hardware's prefetching, so they are
  /// asked for some rows ahead.
  class TileLoader {
   public:
    TileLoader(const ForwardBlock& block, KeyTile<T>& tile, int64_t steps)
        : block_(block), tile_(tile), next_(tile.keys.begin), per_step_((tile.keys.size() + steps - 1) / steps) {
      tile_.num_not_finite = 0;
      for (int64_t j = next_; j < next_ + kRowsAhead; ++j) prefetch(j);
    }

    void operator()() const { load(per_step_); }
    void finish() const { load(tile_.keys.end - next_); }

   private:
    static constexpr int64_t kRowsAhead = 4;

    void load(int64_t rows) const {
      for (; rows > 0 && next_ < tile_.keys.end; --rows, ++next_) {
        prefetch(next_ + kRowsAhead);
        block_.load_key(next_, tile_);
      }
    }

    void prefetch(int64_t j) const {
      if (j >= tile_.keys.end) return;
      prefetch_bytes(block_.k_rows_.at(block_.block_.sequence, j, block_.block_.kv_head), block_.k_row_bytes_);
      prefetch_bytes(block_.v_rows_.at(block_.block_.sequence, j, block_.block_.kv_head), block_.v_row_bytes_);
    }

    const ForwardBlock& block_;
    KeyTile<T>& tile_;
    mutable int64_t next_;
    const int64_t per_step_;
  };

  HWY_NOINLINE void load_key(int64_t j, KeyTile<T>& tile) const {
    const auto factor = static_cast<T>(k_scales_.at(block_.sequence, j, block_.kv_head));
    load_row(problem_.args.k.dtype, k_rows_.at(block_.sequence, j, block_.kv_head), problem_.head_dim, factor,
             tile.k + (j - tile.keys.begin) * s_.k_stride);
    T* v_row = tile.v + (j - tile.keys.begin) * s_.v_stride;
    load_value(j, v_row);
    if (all_finite(v_row, s_.v_stride)) return;
    for (int64_t d = 0; d < s_.v_stride; ++d) v_row[d] = 0;
    tile.not_finite[tile.num_not_finite++] = j;
  }

  void load_value(int64_t j, T* row) const {
    const auto factor = static_cast<T>(v_scales_.at(block_.sequence, j, block_.kv_head));
    load_row(problem_.args.v.dtype, v_rows_.at(block_.sequence, j, block_.kv_head), problem_.head_dim_v, factor, row);
  }

  static bool all_finite(const T* row, int64_t n) {
    const hn::ScalableTag<T> d;
    auto sum = hn::Zero(d);
    for (int64_t i = 0; i < n; i += vector_lanes<T>()) sum = hn::MulAdd(hn::Load(d, row + i), hn::Zero(d), sum);
    return hn::AllFalse(d, hn::IsNaN(sum));
  }

  void one_tile(const KeyTile<T>& tile, KeyTile<T>& next) {
    const int64_t panels = (lanes_ + s_.panel - 1) / s_.panel;
    const TileLoader loader(*this, next, panels * (gemm_blocks(tile.keys.size()) + gemm_blocks(problem_.head_dim_v)));
    for (int64_t lane = 0; lane < lanes_; lane += s_.panel) {
      const int64_t panel_lanes = lanes_ - lane < s_.panel ? lanes_ - lane : s_.panel;
      one_panel(tile, lane, panel_lanes, loader);
    }
    loader.finish();
  }

  void one_panel(const KeyTile<T>& tile, int64_t lane, int64_t panel_lanes, const TileLoader& loader) {
    const KeyRange keys = tile.keys;
    // Rows are in order of their queries, so the first and the last lane bound what the panel sees.
    const LaneTable<T>& table = s_.table;
    const int64_t last = lane + panel_lanes - 1;
    const int64_t begin = keys.begin > table.key_begin[lane] ? keys.begin : table.key_begin[lane];
    const int64_t end = keys.end < table.key_end[last] ? keys.end : table.key_end[last];
    if (begin >= end) return;
    const bool window_edge = table.key_begin[last] > begin || table.key_end[lane] < end;
    const T* k = tile.k + (begin - keys.begin) * s_.k_stride;
    const T* v = tile.v + (begin - keys.begin) * s_.v_stride;
    gemm<T>(GemmStart::zero, end - begin, panel_lanes, problem_.head_dim,
            {k, s_.k_stride, 1, s_.q + lane, s_.lanes, s_.scores, s_.panel, nullptr, kScoreRun}, loader);
    score_tile<T>(problem_, table, {s_.scores, s_.panel, begin, end - begin, lane, panel_lanes}, window_edge,
                  tile.cover == MaskCover::some, nullptr);
    const auto log2_unit = static_cast<T>(units_.log2_unit);
    const bool rose = softmax_tile(end - begin, panel_lanes, s_.scores, s_.panel, log2_unit, s_.softmax.at(lane));
    bool& started = s_.started[lane / s_.panel];
    const GemmStart start = !started ? GemmStart::zero : rose ? GemmStart::rescale : GemmStart::add;
    started = true;
    gemm<T>(start, problem_.head_dim_v, panel_lanes, end - begin,
            {v, 1, s_.v_stride, s_.scores, s_.panel, s_.o + lane, s_.lanes, s_.softmax.factor + lane}, loader);
    for (int64_t at = 0; at < tile.num_not_finite; ++at) {
      const int64_t key = tile.not_finite[at];
      if (begin <= key && key < end) add_value_apart(key, begin, lane, panel_lanes);
    }
  }

  /// o += p·v for one key, only in the lanes that see it.
  HWY_NOINLINE void add_value_apart(int64_t key, int64_t first_key, int64_t lane, int64_t panel_lanes) {
    const hn::ScalableTag<T> d;
    const LaneTable<T>& table = s_.table;
    for (int64_t i = 0; i < panel_lanes; ++i) {
      const bool in_window = table.key_begin[lane + i] <= key && key < table.key_end[lane + i];
      const bool unmasked = table.mask == nullptr || table.mask[lane + i][key] != std::byte{0};
      s_.seen[i] = in_window && unmasked ? T(1) : T(0);
    }
    load_value(key, s_.rows);
    const T* p = s_.scores + (key - first_key) * s_.panel;
    for (int64_t i = 0; i < panel_lanes; i += vector_lanes<T>()) {
      const auto sees = hn::Ne(hn::Load(d, s_.seen + i), hn::Zero(d));
      const auto weight = hn::Load(d, p + i);
      for (int64_t dim = 0; dim < problem_.head_dim_v; ++dim) {
        T* at = s_.o + dim * s_.lanes + lane + i;
        const auto old = hn::Load(d, at);
        hn::Store(hn::IfThenElse(sees, hn::MulAdd(weight, hn::Set(d, s_.rows[dim]), old), old), d, at);
      }
    }
  }

  void store_results() {
    const int64_t vector = vector_lanes<T>();
    for (int64_t lane = 0; lane < lanes_; lane += vector) {
      if (!s_.started[lane / s_.panel]) clear_output(lane);
      transpose(problem_.head_dim_v, vector, s_.o + lane, s_.lanes, s_.rows, s_.v_stride);
      for (int64_t v = 0; v < vector && lane + v < block_.rows; ++v) store_result(lane + v, s_.rows + v * s_.v_stride);
    }
  }

  void clear_output(int64_t lane) {
    const hn::ScalableTag<T> d;
    for (int64_t dim = 0; dim < problem_.head_dim_v; ++dim) hn::Store(hn::Zero(d), d, s_.o + dim * s_.lanes + lane);
  }

  void store_result(int64_t lane, const T* row) {
    const Attention& args = problem_.args;
    const int64_t i = block_.query(lane), head = block_.head(lane);
    float sink = 0;
    if (args.sink.present()) sink = sink_logit(problem_, head);
    const double row_max_log2 = units_.log2_unit * static_cast<double>(s_.softmax.row_max[lane]);
    const FinishedRow finished =
        finish_row(row_max_log2, s_.softmax.row_sum[lane], args.sink.present() ? &sink : nullptr);
    store_row(args.o.dtype, row, problem_.head_dim_v, static_cast<T>(finished.output_factor),
              QueryRows(problem_, args.o).at(block_.sequence, i, head));
    large_.see_lse(block_.sequence.batch, block_.kv_head, finished.lse);
    if (args.lse.present())
      store_element(args.lse.dtype, LseRows(problem_, args.lse).at(block_.sequence, i, head), 0, finished.lse);
  }

  const Problem& problem_;
  const QueryBlock& block_;
  const LargeLogits& large_;
  const int64_t tile_n_;
  const ScoreUnits units_;
  ForwardScratch<T> s_;
  const int64_t lanes_;
  const KeyRows k_rows_, v_rows_;
  const int64_t k_row_bytes_, v_row_bytes_;
  const KeyScales k_scales_, v_scales_;
};

template <typename T>
KernelShape shape() {
  return {vector_lanes<T>(), kPanelVectors * vector_lanes<T>()};
}

KernelShape shape_f32() { return shape<float>(); }
KernelShape shape_f64() { return shape<double>(); }

std::size_t scratch_f32(const Problem& problem, const TileConfig& tile) {
  return ForwardScratch<float>::bytes(problem, tile);
}
std::size_t scratch_f64(const Problem& problem, const TileConfig& tile) {
  return ForwardScratch<double>::bytes(problem, tile);
}

void block_f32(const Problem& problem, const TileConfig& tile, const QueryBlock& block, const LargeLogits& large,
               std::byte* scratch) {
  ForwardBlock<float>(problem, tile, block, large, scratch).run();
}
void block_f64(const Problem& problem, const TileConfig& tile, const QueryBlock& block, const LargeLogits& large,
               std::byte* scratch) {
  ForwardBlock<double>(problem, tile, block, large, scratch).run();
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onchip::cpu {

HWY_EXPORT(shape_f32);
HWY_EXPORT(shape_f64);
HWY_EXPORT(scratch_f32);
HWY_EXPORT(scratch_f64);
HWY_EXPORT(block_f32);
HWY_EXPORT(block_f64);

template <>
KernelShape forward_shape<float>() {
  return HWY_DYNAMIC_DISPATCH(shape_f32)();
}
template <>
KernelShape forward_shape<double>() {
  return HWY_DYNAMIC_DISPATCH(shape_f64)();
}

template <>
std::size_t forward_scratch_bytes<float>(const Problem& problem, const TileConfig& tile) {
  return HWY_DYNAMIC_DISPATCH(scratch_f32)(problem, tile);
}
template <>
std::size_t forward_scratch_bytes<double>(const Problem& problem, const TileConfig& tile) {
  return HWY_DYNAMIC_DISPATCH(scratch_f64)(problem, tile);
}

template <>
void forward_block<float>(const Problem& problem, const TileConfig& tile, const QueryBlock& block,
                          const LargeLogits& large, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(block_f32)(problem, tile, block, large, scratch);
}
template <>
void forward_block<double>(const Problem& problem, const TileConfig& tile, const QueryBlock& block,
                           const LargeLogits& large, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(block_f64)(problem, tile, block, large, scratch);
}

}  // namespace onchip::cpu
#endif  // HWY_ONCE
