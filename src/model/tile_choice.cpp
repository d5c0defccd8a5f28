#include "model/tile_choice.hpp"

#include <algorithm>
#include <limits>

#include "shared/ceil_div.hpp"

namespace onchip::model {
namespace {

// What a core of the last ten years does in one cycle, within a factor of two. Only their ratios matter, and the
// minimum is flat. They are fixed, not measured, so that a machine always chooses the same tile.
constexpr double kRegisterBytesPerCycle = 64;  // two multiply-add units of 32 bytes
constexpr double kL2BytesPerCycle = 32;
constexpr double kL3BytesPerCycle = 16;
constexpr double kMainMemoryBytesPerCycle = 8;
constexpr double kTransposeCyclesPerElement = 2;  // bounds checks and address arithmetic of short rows included

constexpr std::int64_t kMaxScratchBytes = 512 << 10;

// Tiles are chosen for sequences of this length and then cut to size. A choice that looked at the true lengths, which
// are those of the longest sequence of a batch, would let a sequence's neighbours change its bits.
constexpr std::int64_t kTypicalSeqlen = 2048;

constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) { return ceil_div(a, multiple) * multiple; }

/// Seen from one row of the tile that stays (forward: query rows stay and keys pass by; backward: the reverse).
struct Streaming {
  double visible;            ///< passing rows that a staying row sees, on average
  double staying_tile;       ///< rows
  double passing_tile;       ///< rows
  double passing_bytes;      ///< that one passing row brings along from afar, and takes back
  double passing_cycles;     ///< to convert and transpose one passing row
  double staying_bytes;      ///< that one staying row moves in all
  double accumulator_bytes;  ///< of a staying row, read and written once for each passing tile
  double flops;              ///< for each pair
  double edge;               ///< passing rows computed beyond those visible, for each masked edge
};

double passing_bytes_per_cycle(double head_bytes, const CacheSizes& caches) {
  return head_bytes <= 0.5 * static_cast<double>(caches.l3_bytes) ? kL3BytesPerCycle : kMainMemoryBytesPerCycle;
}

double cycles_per_row(const Streaming& s, int masked_edges, double passing_total, double compute_bytes,
                      const CacheSizes& caches) {
  const double computed = std::min(passing_total, s.visible + masked_edges * s.edge);
  const double steps = std::max(1.0, computed / s.passing_tile);
  const double far = passing_bytes_per_cycle(passing_total * s.passing_bytes, caches);
  const double flops_per_cycle = 2 * kRegisterBytesPerCycle / compute_bytes;
  return computed * s.flops / flops_per_cycle + computed * (s.passing_bytes / far + s.passing_cycles) / s.staying_tile +
         s.staying_bytes / far + steps * 2 * s.accumulator_bytes / kL2BytesPerCycle;
}

MaskRange mask_of(const CpuTileRequest& r) {
  return {r.seqlen_k, r.seqlen_k - r.seqlen_q, r.window_left, r.window_right};
}

/// Equal tiles: as many as before, each no larger than needed.
std::int64_t even_tile(std::int64_t total, std::int64_t tile, std::int64_t granule) {
  return round_up(ceil_div(total, ceil_div(total, tile)), granule);
}

}  // namespace

CpuTileRequest cpu_tile_request(const Problem& problem, std::int64_t compute_bytes, std::int64_t granule_m,
                                std::int64_t granule_n) {
  CpuTileRequest request;
  request.pass = problem.pass;
  request.seqlen_q = problem.max_seqlen_q;
  request.seqlen_k = problem.max_seqlen_k;
  request.head_dim = problem.head_dim;
  request.head_dim_v = problem.head_dim_v;
  request.window_left = problem.window_left;
  request.window_right = problem.window_right;
  request.element_bytes = static_cast<std::int64_t>(size_of(problem.args.k.dtype));
  request.compute_bytes = compute_bytes;
  request.granule_m = granule_m;
  request.granule_n = granule_n;
  return request;
}

std::int64_t cpu_scratch_elements(Pass pass, std::int64_t tile_m, std::int64_t tile_n, std::int64_t head_dim,
                                  std::int64_t head_dim_v, std::int64_t panel) {
  const std::int64_t dims = head_dim + head_dim_v;
  if (pass == Pass::forward) return (tile_m + 2 * tile_n) * dims + std::min(panel, tile_m) * tile_n;
  return 2 * (tile_m + tile_n) * dims + 2 * tile_m * tile_n;
}

std::int64_t cpu_scratch_budget(const CacheSizes& caches) { return std::min(caches.l2_bytes / 2, kMaxScratchBytes); }

double cpu_tile_cost(const CpuTileRequest& r, std::int64_t tile_m, std::int64_t tile_n, const CacheSizes& caches) {
  const auto d = static_cast<double>(r.head_dim), dv = static_cast<double>(r.head_dim_v);
  const auto compute = static_cast<double>(r.compute_bytes);
  const double row_bytes = (d + dv) * static_cast<double>(r.element_bytes);
  const auto group = static_cast<double>(r.rows_per_query);
  const double pairs = mask_of(r).visible_pairs(r.seqlen_q);
  const int edges = (r.window_left >= 0 ? 1 : 0) + (r.window_right >= 0 ? 1 : 0);
  const auto m = static_cast<double>(tile_m), n = static_cast<double>(tile_n);
  if (r.pass == Pass::forward) {
    const Streaming keys{.visible = pairs / static_cast<double>(r.seqlen_q),
                         .staying_tile = m,
                         .passing_tile = n,
                         .passing_bytes = row_bytes,
                         .passing_cycles = 0,
                         .staying_bytes = row_bytes,
                         .accumulator_bytes = dv * compute,
                         .flops = 2 * (d + dv),
                         // Each panel of rows computes the keys that one of its rows sees.
                         .edge = 0.5 * static_cast<double>(r.granule_m) / group};
    return cycles_per_row(keys, edges, static_cast<double>(r.seqlen_k), compute, caches);
  }
  const Streaming queries{.visible = pairs * group / static_cast<double>(r.seqlen_k),
                          .staying_tile = n,
                          .passing_tile = m,
                          .passing_bytes = row_bytes + 2 * d * compute,
                          .passing_cycles = kTransposeCyclesPerElement * (d + dv),
                          .staying_bytes = 2 * row_bytes,
                          .accumulator_bytes = (d + dv) * compute,
                          .flops = 2 * (3 * d + 2 * dv),
                          // Each block of rows computes the keys that one of its rows sees.
                          .edge = 0.5 * m};
  return cycles_per_row(queries, edges, static_cast<double>(r.seqlen_q) * group, compute, caches);
}

TileConfig choose_cpu_tile(const CpuTileRequest& request, const CacheSizes& caches, const ScratchBytes& scratch) {
  TileConfig best;
  best.tile_m = request.granule_m;
  best.tile_n = request.granule_n;
  if (request.seqlen_q == 0 || request.seqlen_k == 0) return best;

  CpuTileRequest typical = request;
  typical.seqlen_q = typical.seqlen_k = kTypicalSeqlen;
  const std::int64_t budget = cpu_scratch_budget(caches);
  double best_cost = std::numeric_limits<double>::infinity();
  std::int64_t most_keys = std::min(round_up(kTypicalSeqlen, request.granule_n), request.max_tile_n);
  for (std::int64_t tile_m = request.granule_m; tile_m <= kTypicalSeqlen; tile_m += request.granule_m) {
    while (most_keys > 0 && scratch(tile_m, most_keys) > budget) most_keys -= request.granule_n;
    if (most_keys == 0) break;
    for (std::int64_t tile_n = request.granule_n; tile_n <= most_keys; tile_n += request.granule_n) {
      const double cost = cpu_tile_cost(typical, tile_m, tile_n, caches);
      if (cost >= best_cost) continue;
      best_cost = cost;
      best.tile_m = tile_m;
      best.tile_n = tile_n;
    }
  }
  best.tile_m = even_tile(request.seqlen_q * request.rows_per_query, best.tile_m, request.granule_m);
  best.tile_n = std::min(best.tile_n, round_up(request.seqlen_k, request.granule_n));
  return best;
}

TileConfig choose_cpu_tile(const CpuTileRequest& request, const CacheSizes& caches) {
  return choose_cpu_tile(request, caches, [&](std::int64_t tile_m, std::int64_t tile_n) {
    return request.compute_bytes *
           cpu_scratch_elements(request.pass, tile_m, tile_n, request.head_dim, request.head_dim_v, request.granule_m);
  });
}

}  // namespace onchip::model
