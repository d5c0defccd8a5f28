// The bytes that each level of a machine's memory serves for one call of attention (docs/traffic.md).
//
// A level's bytes are those that cross between it and the levels nearer to the units: what the products read from
// shared memory or L1, what the units ask of L2 or L3, what main memory delivers and takes. Inputs begin in main
// memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/machine.hpp"
#include "model/shape.hpp"

namespace onchip::model {

struct LevelTraffic {
  double read_bytes = 0;
  double write_bytes = 0;

  double total() const { return read_bytes + write_bytes; }
};

struct Traffic {
  std::vector<LevelTraffic> levels;  ///< one for each level of the machine, nearest first
  /// Results that are still in the shared cache when a kernel ends, so that main memory has not seen them yet: not part
  /// of its write_bytes. They are written later, unless they are overwritten before.
  double dirty_bytes = 0;
  double flops = 0;         ///< on pairs that the mask leaves
  double exponentials = 0;  ///< of the forward softmax or its recomputation
  double extra_bytes = 0;   ///< memory that the method needs besides inputs and results

  const LevelTraffic& main_memory() const { return levels.back(); }
  void add(const Traffic& other);
};

/// How tiled attention is cut: tile_m query rows (of heads_per_tile heads that share their keys) by tile_n keys.
struct Tiling {
  std::int64_t tile_m = 128;
  std::int64_t tile_n = 128;
  std::int64_t cluster = 1;  ///< thread blocks that share one read of K and V (multicast)
  std::int64_t heads_per_tile = 1;
  std::int64_t num_splits = 1;  ///< parts of the keys whose f32 results are merged
};

/// Scores never leave the chip.
Traffic tiled_traffic(const Machine& machine, const AttentionShape& shape, const Tiling& tiling, Pass pass);

/// Whether kernels find in the shared cache what the kernel before left there. A profiler that measures kernels one by
/// one flushes it between them.
enum class CacheBetweenKernels { kept, flushed };

/// How standard attention is put together.
struct StandardMethod {
  DType score_dtype = DType::f32;  ///< that S and P are stored in
  /// Textbook: the scale (with bias and mask), the softmax and the products are kernels apart. Otherwise the softmax
  /// does the scaling and replaces S by P in its place, and going back one kernel turns S and dP into P and dS.
  bool textbook = true;
  CacheBetweenKernels cache = CacheBetweenKernels::kept;
};

/// Standard attention, kernel by kernel.
struct StandardKernel {
  std::string name;
  Traffic traffic;
};
std::vector<StandardKernel> standard_kernels(const Machine& machine, const AttentionShape& shape,
                                             const StandardMethod& method, Pass pass);
Traffic standard_traffic(const Machine& machine, const AttentionShape& shape, const StandardMethod& method, Pass pass);

/// Of `written` bytes among `streamed` bytes that pass through the shared cache once, those still in it at the end: the
/// cache holds the lines touched last, and the writes' share of them is their share of the stream.
double dirty_at_end(const Machine& machine, double written, double streamed);

/// Bytes that cross between the parts of a split cache. `shared` bytes are read by units of every part, so each line
/// crosses once to every other part; of `private_bytes` each is touched from one part, which is another than its own
/// for all but one in cache_partitions.
double partition_crossings(const Machine& machine, double shared, double private_bytes);

}  // namespace onchip::model
