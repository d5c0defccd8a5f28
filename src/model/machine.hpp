// What the model knows of a machine: its compute units, its memory levels and its peaks. Pure data (docs/traffic.md).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/cache_sizes.hpp"
#include "onchip/onchip.hpp"

namespace onchip::model {

enum class MachineKind { gpu, cpu };

/// One level of memory. Levels are listed nearest first: what belongs to one unit (shared memory; L1 and L2 of a core),
/// then at most one cache that all units share, then main memory.
struct Level {
  std::string name;
  double capacity_bytes = 0;  ///< of one unit, or of the whole where shared; 0 for main memory: any amount
  bool shared = false;
  double bandwidth = 0;  ///< bytes/s of all units together, reading; 0: unknown
};

/// Queries × keys of one product that stay in registers while operands stream past from the nearest level.
struct RegisterBlock {
  double queries = 64;
  double keys = 128;
  bool p_in_registers = true;  ///< the probabilities feed the second product without leaving registers
};

/// Output tile of the library's matrix product, for standard attention; `cluster` tiles share one read of B.
struct GemmTile {
  double tile_m = 128;
  double tile_n = 128;
  double cluster = 1;
};

struct PeakFlops {
  double f64 = 0, f32 = 0, bf16 = 0, f16 = 0, fp8 = 0, i8 = 0;  ///< FLOP/s, dense; 0: the type is computed in another
};

struct Machine {
  std::string name;
  MachineKind kind = MachineKind::gpu;
  std::int64_t units = 1;  ///< SMs, or cores in use
  double clock_hz = 0;
  std::vector<Level> levels;
  PeakFlops peak;
  double exp_per_cycle = 0;   ///< exponentials of one unit; 0: unknown
  double register_bytes = 0;  ///< of one unit, for tiles that keep their accumulators there; 0: not a limit
  RegisterBlock block;
  GemmTile gemm;
  /// Share of the shared cache that behaves as a queue of the lines touched last. Below 1 because replacement is not
  /// exactly by age and because a line read from both halves of a split cache is held twice.
  double effective_share = 1.0;
  /// Parts of the shared cache. A line that a unit of another part asks for crosses between them.
  int cache_partitions = 1;
  /// A store first reads the line that it writes to.
  bool write_allocate = false;

  std::size_t main_level() const { return levels.size() - 1; }
  /// The last level that belongs to a unit: what a tile has to fit in.
  std::size_t tile_level() const;
  bool has_shared_cache() const { return levels.size() > 1 && levels[levels.size() - 2].shared; }
  /// Bytes that all units find again in the nearest memory they share; without a shared cache, in one unit's own.
  double reuse_capacity() const;
  /// FLOP/s on products of this type: its own peak, else that of the type it is computed in.
  double peak_flops(DType type) const;
};

/// The machines known by name: H200, H100, A100, B200, RTX4090, RTX5090.
const std::vector<Machine>& known_machines();
/// Null when no machine has the name, whose case does not matter.
const Machine* find_machine(const std::string& name);

/// A GPU as its driver describes it. Where its name holds that of a known machine, the rest is as there; else peaks and
/// bandwidths are unknown.
Machine gpu_machine(const std::string& name, std::int64_t units, double shared_memory_bytes, double l2_bytes);

/// What was, or will be, measured on the present CPU (cpu/measure.hpp); 0: not measured.
struct CpuPeaks {
  double f32_flops = 0, f64_flops = 0;
  double l1_bandwidth = 0, l2_bandwidth = 0, l3_bandwidth = 0, memory_bandwidth = 0;
};

/// A CPU of `cores` cores that compute together.
Machine cpu_machine(const std::string& name, std::int64_t cores, const CacheSizes& caches, const CpuPeaks& peaks);

}  // namespace onchip::model
