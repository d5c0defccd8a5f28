#include "model/tile_options.hpp"

#include <algorithm>

#include "model/tile_choice.hpp"

namespace onchip::model {
namespace {

constexpr std::int64_t kHeights[] = {16, 32, 64, 96, 128, 192, 256, 384, 512};
constexpr std::int64_t kGranule = 16;
constexpr std::int64_t kLargestPassingTile = 256;  // the widest product instruction

/// K and V (backward: Q and dO) are loaded while the tile before is in use.
constexpr double kStages = 2;
/// Of the registers; the rest holds addresses, statistics and the warps that load.
constexpr double kAccumulatorShare = 0.8;
/// Bytes of a score and its probability in registers, per byte of the score.
constexpr double kScoreAndProbability = 1.5;

double size(DType type) { return static_cast<double>(size_of(type)); }

CacheSizes caches_of(const Machine& machine) {
  CacheSizes caches;
  caches.l2_bytes = static_cast<std::int64_t>(machine.levels[machine.tile_level()].capacity_bytes);
  return caches;
}

double compute_size(const AttentionShape& shape) { return shape.dtype == DType::f64 ? 8 : 4; }

std::int64_t& passing_tile(Tiling& tiling, Pass pass) { return pass == Pass::forward ? tiling.tile_n : tiling.tile_m; }
std::int64_t& staying_tile(Tiling& tiling, Pass pass) { return pass == Pass::forward ? tiling.tile_m : tiling.tile_n; }

}  // namespace

OnChipRoom on_chip_room(const Machine& machine) {
  if (machine.kind == MachineKind::cpu) return {static_cast<double>(cpu_scratch_budget(caches_of(machine))), 0};
  return {machine.levels[machine.tile_level()].capacity_bytes, kAccumulatorShare * machine.register_bytes};
}

double on_chip_bytes(const Machine& machine, const AttentionShape& shape, const Tiling& tiling, Pass pass) {
  if (machine.kind == MachineKind::cpu)
    return static_cast<double>(cpu_scratch_elements(pass, tiling.tile_m, tiling.tile_n, shape.head_dim,
                                                    shape.head_dim_v,
                                                    static_cast<std::int64_t>(machine.block.queries))) *
           compute_size(shape);
  const auto m = static_cast<double>(tiling.tile_m), n = static_cast<double>(tiling.tile_n);
  const auto d = static_cast<double>(shape.head_dim), dv = static_cast<double>(shape.head_dim_v);
  const double element = size(shape.dtype), kv = size(shape.kv_dtype);
  if (pass == Pass::forward) return m * d * element + kStages * n * (d + dv) * kv;
  return n * (d + dv) * kv + kStages * m * (d + dv) * element + m * n * element;  // dS goes through shared memory
}

double accumulator_bytes(const Machine& machine, const AttentionShape& shape, const Tiling& tiling, Pass pass) {
  if (machine.register_bytes <= 0) return 0;
  const auto m = static_cast<double>(tiling.tile_m), n = static_cast<double>(tiling.tile_n);
  const auto d = static_cast<double>(shape.head_dim), dv = static_cast<double>(shape.head_dim_v);
  const double compute = compute_size(shape);
  if (pass == Pass::forward) return compute * (m * dv + kScoreAndProbability * m * n);
  return compute * (n * (d + dv) + 2 * m * n);
}

bool fits(const Machine& machine, const AttentionShape& shape, const Tiling& tiling, Pass pass) {
  const OnChipRoom room = on_chip_room(machine);
  return on_chip_bytes(machine, shape, tiling, pass) <= room.bytes &&
         (room.register_bytes <= 0 || accumulator_bytes(machine, shape, tiling, pass) <= room.register_bytes);
}

TileOption tile_option(const Machine& machine, const AttentionShape& shape, const Tiling& tiling, Pass pass) {
  TileOption option;
  option.tiling = tiling;
  option.on_chip_bytes = on_chip_bytes(machine, shape, tiling, pass);
  option.register_bytes = accumulator_bytes(machine, shape, tiling, pass);
  option.fits = fits(machine, shape, tiling, pass);
  option.traffic = tiled_traffic(machine, shape, tiling, pass);
  option.seconds = roofline(machine, option.traffic, shape.dtype).seconds;
  return option;
}

std::vector<TileOption> tile_options(const Machine& machine, const AttentionShape& shape, const Tiling& like,
                                     Pass pass) {
  std::vector<TileOption> options;
  const std::int64_t staying_rows = pass == Pass::forward ? shape.seqlen_q * like.heads_per_tile : shape.seqlen_k;
  for (const std::int64_t height : kHeights) {
    Tiling tiling = like;
    staying_tile(tiling, pass) = height;
    std::int64_t& width = passing_tile(tiling, pass);
    width = kLargestPassingTile;
    while (width > kGranule && !fits(machine, shape, tiling, pass)) width -= kGranule;
    options.push_back(tile_option(machine, shape, tiling, pass));
    if (height >= staying_rows) break;
  }
  return options;
}

const TileOption* best_option(const std::vector<TileOption>& options) {
  const auto far_bytes = [](const TileOption& option) {
    const auto& levels = option.traffic.levels;
    double bytes = levels.back().total();
    if (levels.size() > 1) bytes += levels[levels.size() - 2].total();
    return bytes;
  };
  const TileOption* best = nullptr;
  for (const TileOption& option : options)
    if (option.fits && (best == nullptr || far_bytes(option) < far_bytes(*best))) best = &option;
  return best;
}

}  // namespace onchip::model
