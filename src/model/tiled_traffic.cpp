// Tiled attention. Forward: a block of query rows stays on chip while keys and values stream past. Backward: a block of
// keys and values stays while queries, dO and dQ stream past. One description, Stream, serves both.
#include <algorithm>
#include <cmath>

#include "model/traffic.hpp"

namespace onchip::model {
namespace {

double size(DType type) { return static_cast<double>(size_of(type)); }

/// Scratch and accumulators: f64 for f64, else f32.
double compute_size(const AttentionShape& shape) { return shape.dtype == DType::f64 ? 8 : 4; }

/// Elements that the products read: as stored on a GPU, converted to the accumulators' type on a CPU.
double operand_size(const Machine& machine, const AttentionShape& shape) {
  return machine.kind == MachineKind::cpu ? compute_size(shape) : size(shape.dtype);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// What streams past the blocks of one (batch, KV head), counted in rows.
struct Coverage {
  double blocks = 0;           ///< blocks that stay, over one KV head
  double streamed = 0;         ///< passing rows, summed over blocks
  double streamed_shared = 0;  ///< the same, counting what `cluster` neighbours share once
  double pairs = 0;            ///< pairs computed, masked ones at the edges included
};

KeyRange round_out(KeyRange range, std::int64_t tile, std::int64_t limit) {
  if (range.empty()) return {0, 0};
  return {range.begin / tile * tile, std::min(limit, ceil_div(range.end, tile) * tile)};
}

Coverage forward_coverage(const AttentionShape& shape, const Tiling& tiling) {
  const MaskRange mask = shape.mask();
  const std::int64_t heads_per_tile = std::min(tiling.heads_per_tile, shape.heads_per_kv());
  const std::int64_t queries = std::max<std::int64_t>(1, tiling.tile_m / heads_per_tile);
  const auto tiles_of_heads = static_cast<double>(ceil_div(shape.heads_per_kv(), heads_per_tile));
  Coverage c;
  for (std::int64_t begin = 0; begin < shape.seqlen_q; begin += queries * tiling.cluster) {
    const std::int64_t cluster_end = std::min(shape.seqlen_q, begin + queries * tiling.cluster);
    const auto together = round_out(mask.keys_of_any(begin, cluster_end - 1), tiling.tile_n, shape.seqlen_k);
    c.streamed_shared += tiles_of_heads * static_cast<double>(together.size());
    for (std::int64_t first = begin; first < cluster_end; first += queries) {
      const std::int64_t end = std::min(cluster_end, first + queries);
      const auto keys = round_out(mask.keys_of_any(first, end - 1), tiling.tile_n, shape.seqlen_k);
      c.blocks += tiles_of_heads;
      c.streamed += tiles_of_heads * static_cast<double>(keys.size());
      c.pairs += static_cast<double>((end - first) * keys.size() * shape.heads_per_kv());
    }
  }
  return c;
}

Coverage backward_coverage(const AttentionShape& shape, const Tiling& tiling) {
  const MaskRange mask = shape.mask();
  const auto group = static_cast<double>(shape.heads_per_kv());
  Coverage c;
  for (std::int64_t begin = 0; begin < shape.seqlen_k; begin += tiling.tile_n) {
    const std::int64_t end = std::min(shape.seqlen_k, begin + tiling.tile_n);
    const auto rows = round_out(mask.queries({begin, end}, shape.seqlen_q), tiling.tile_m, shape.seqlen_q);
    c.blocks += 1;
    c.streamed += group * static_cast<double>(rows.size());
    c.pairs += group * static_cast<double>((end - begin) * rows.size());
  }
  c.streamed_shared = c.streamed;
  return c;
}

/// How often main memory delivers what streams past the blocks of one head. Once, when what is in use at a time stays
/// in the shared cache; else once for each round of blocks that run together. Without a shared cache, for every block,
/// or for every unit where the unit's own cache keeps it.
double deliveries(const Machine& machine, double blocks_per_head, double heads, double bytes_per_head) {
  const auto units = static_cast<double>(machine.units);
  const double capacity = machine.reuse_capacity();
  if (!machine.has_shared_cache())
    return bytes_per_head <= capacity ? std::min(blocks_per_head, units) : blocks_per_head;
  const double heads_at_once = std::min(heads, std::ceil(units / std::max(1.0, blocks_per_head)));
  if (heads_at_once * bytes_per_head <= capacity) return 1;
  return std::max(1.0, std::ceil(blocks_per_head / units));
}

/// What the two kinds of rows carry, in bytes of all heads unless said otherwise.
struct Stream {
  Coverage coverage;      ///< of one KV head
  double kv_heads;        ///< of the whole batch
  double passing_row;     ///< read for each passing row
  double passing_unique;  ///< all that passes, each byte once
  double summed_row;      ///< read and written back for each passing row: dQ
  double summed_unique;
  double summed_copies;
  double staying_read, staying_written;
  double accumulator_row;  ///< read and written by the tile level for each staying row and step
  double staying_rows, passing_tile;
  double operand_bytes_per_pair, tile_bytes_per_pair;
};

void count_near_levels(const Machine& machine, const AttentionShape& shape, const Stream& s, Traffic& t) {
  const double pairs = s.coverage.pairs * s.kv_heads;
  const double compute = compute_size(shape);
  LevelTraffic& nearest = t.levels.front();
  nearest.read_bytes += pairs * s.operand_bytes_per_pair;
  const double rows_in = s.coverage.streamed * s.kv_heads * s.passing_row + s.staying_read;
  if (machine.kind == MachineKind::gpu) {
    nearest.write_bytes += rows_in;
    return;
  }
  // On a CPU the scores pass through L1: written, read by the softmax, written as P (and read as an operand, above).
  nearest.read_bytes += pairs * compute;
  nearest.write_bytes += 2 * pairs * compute;
  if (machine.tile_level() == 0) return;
  const double steps = s.coverage.streamed * s.kv_heads / s.passing_tile;
  const double accumulators = steps * s.staying_rows * s.accumulator_row;
  LevelTraffic& tile = t.levels[machine.tile_level()];
  tile.read_bytes += pairs * s.tile_bytes_per_pair + accumulators;
  tile.write_bytes += accumulators + rows_in * compute / size(shape.kv_dtype);
}

/// dQ, summed in the accumulators' type over all blocks, in a copy for each split: a GPU keeps all of it until the end,
/// a CPU that of the heads at work.
void count_summed_rows(const Machine& machine, const Stream& s, double again, LevelTraffic& memory) {
  const double heads_kept =
      machine.kind == MachineKind::gpu ? s.kv_heads : std::min(s.kv_heads, static_cast<double>(machine.units));
  if (heads_kept / s.kv_heads * s.summed_copies * s.summed_unique <= machine.reuse_capacity()) return;
  const double bytes = std::max(again, s.summed_copies) * s.summed_unique;
  memory.read_bytes += bytes;
  memory.write_bytes += bytes;
}

void count_far_levels(const Machine& machine, const AttentionShape& shape, const Stream& s, Traffic& t) {
  const double passing = s.coverage.streamed_shared * s.kv_heads;
  const double score = shape.score_bytes_per_pair * shape.pairs();
  if (machine.has_shared_cache()) {
    LevelTraffic& shared = t.levels[machine.main_level() - 1];
    const double summed = passing * s.summed_row + s.summed_unique;
    shared.read_bytes += s.staying_read + passing * s.passing_row + summed + score;
    shared.write_bytes += s.staying_written + summed;
    shared.read_bytes += partition_crossings(machine, s.passing_unique, s.staying_read + score);
    shared.write_bytes += partition_crossings(machine, 0, s.staying_written);
  }
  const double again = deliveries(machine, s.coverage.blocks, s.kv_heads, s.passing_unique / s.kv_heads);
  const double delivered = std::max(s.passing_unique, std::min(again * s.passing_unique, passing * s.passing_row));
  const double main_read = s.staying_read + delivered + shape.score_bytes();
  LevelTraffic& memory = t.levels.back();
  memory.read_bytes += main_read;
  t.dirty_bytes = dirty_at_end(machine, s.staying_written, main_read + s.staying_written);
  memory.write_bytes += s.staying_written - t.dirty_bytes;
  if (machine.write_allocate) memory.read_bytes += s.staying_written;
  count_summed_rows(machine, s, again, memory);
}

/// f32 partial results, written and read again by their merging.
void count_splits(const Machine& machine, const AttentionShape& shape, const Tiling& tiling, Traffic& t) {
  if (tiling.num_splits <= 1) return;
  const auto rows = static_cast<double>(shape.batch * shape.num_heads_q * shape.seqlen_q);
  const double bytes =
      static_cast<double>(tiling.num_splits) * rows * static_cast<double>(shape.head_dim_v + 1) * compute_size(shape);
  t.extra_bytes += bytes;
  const auto pass_through = [&](std::size_t level) {
    t.levels[level].read_bytes += bytes;
    t.levels[level].write_bytes += bytes;
  };
  if (machine.has_shared_cache()) pass_through(machine.main_level() - 1);
  if (!machine.has_shared_cache() || bytes > machine.reuse_capacity()) pass_through(machine.main_level());
}

Stream forward_stream(const Machine& machine, const AttentionShape& shape, const Tiling& tiling) {
  const auto d = static_cast<double>(shape.head_dim), dv = static_cast<double>(shape.head_dim_v);
  const double operand = operand_size(machine, shape), compute = compute_size(shape);
  const RegisterBlock& block = machine.block;
  Stream s{};
  s.coverage = forward_coverage(shape, tiling);
  s.kv_heads = static_cast<double>(shape.batch * shape.num_heads_kv);
  s.passing_row = shape.key_bytes();
  s.passing_unique = shape.visible_kv_bytes();
  s.staying_read = shape.q_bytes();
  s.staying_written = shape.o_bytes() + shape.lse_bytes();
  s.accumulator_row = dv * compute;
  s.staying_rows = static_cast<double>(tiling.tile_m);
  s.passing_tile = static_cast<double>(tiling.tile_n);
  const double keys = std::min(block.keys, static_cast<double>(tiling.tile_n));
  const double p_reads = block.p_in_registers ? 0 : dv / keys;
  s.operand_bytes_per_pair = operand * ((d + dv) / block.queries + d / keys + p_reads);
  s.tile_bytes_per_pair = compute * (d + dv) / block.queries;
  return s;
}

Stream backward_stream(const Machine& machine, const AttentionShape& shape, const Tiling& tiling) {
  const auto d = static_cast<double>(shape.head_dim), dv = static_cast<double>(shape.head_dim_v);
  const double operand = operand_size(machine, shape), compute = compute_size(shape);
  const auto rows = static_cast<double>(shape.batch * shape.num_heads_q * shape.seqlen_q);
  Stream s{};
  s.coverage = backward_coverage(shape, tiling);
  s.kv_heads = static_cast<double>(shape.batch * shape.num_heads_kv);
  // Q, dO, lse and rowsum(dO ∘ O) pass by; dQ is summed in the accumulators' type.
  s.passing_row = d * size(shape.dtype) + dv * size(output_dtype(shape.dtype)) + 2 * compute;
  s.summed_row = d * compute;
  s.summed_unique = rows * s.summed_row;
  s.summed_copies = static_cast<double>(tiling.num_splits);
  s.passing_unique = rows * s.passing_row;
  // Besides K, V, dK and dV: O and dO are read once for the row sums, and dQ is written in its own type at the end.
  const double kv = static_cast<double>(shape.batch * shape.num_heads_kv * shape.seqlen_k) * shape.key_bytes();
  s.staying_read = kv + 2 * shape.o_bytes();
  s.staying_written = kv + shape.q_bytes();
  s.accumulator_row = (d + dv) * compute;
  s.staying_rows = static_cast<double>(tiling.tile_n);
  s.passing_tile = static_cast<double>(tiling.tile_m);
  s.operand_bytes_per_pair = operand * (3 * d + 2 * dv) * (1 / machine.block.queries + 1 / machine.block.keys);
  s.tile_bytes_per_pair = compute * (3 * d + 2 * dv) / machine.block.queries;
  return s;
}

}  // namespace

Traffic tiled_traffic(const Machine& machine, const AttentionShape& shape, const Tiling& tiling, Pass pass) {
  Traffic t;
  t.levels.resize(machine.levels.size());
  t.flops = shape.flops(pass);
  t.exponentials = shape.pairs();
  if (shape.batch == 0 || shape.seqlen_q == 0) return t;
  const Stream s =
      pass == Pass::forward ? forward_stream(machine, shape, tiling) : backward_stream(machine, shape, tiling);
  count_near_levels(machine, shape, s, t);
  count_far_levels(machine, shape, s, t);
  if (pass == Pass::forward)
    count_splits(machine, shape, tiling, t);
  else
    t.extra_bytes += s.summed_copies * s.summed_unique + shape.lse_bytes();  // dQ and the row sums
  return t;
}

}  // namespace onchip::model
