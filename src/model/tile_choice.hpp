// Chooses the tile sizes of the CPU kernels: those whose scratch fits in a core's own cache and which spend the fewest
// cycles a score on arithmetic at masked edges and on bytes moved from the farther caches (docs/traffic.md).
//
// tile_n decides the order of sums, so it depends on head dimensions, mask, data type and cache sizes alone: a batch's
// other sequences and the number of threads cannot change a result. A short sequence only cuts it to its length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/problem.hpp"
#include "model/cache_sizes.hpp"

namespace onchip::model {

struct CpuTileRequest {
  Pass pass = Pass::forward;
  std::int64_t seqlen_q = 0;
  std::int64_t seqlen_k = 0;
  std::int64_t head_dim = 0;
  std::int64_t head_dim_v = 0;
  std::int64_t rows_per_query = 1;  ///< query heads stacked in a tile because they share their keys
  std::int64_t window_left = -1;    ///< causal is window_right = 0
  std::int64_t window_right = -1;
  std::int64_t element_bytes = 4;  ///< of a stored key, value or query
  std::int64_t compute_bytes = 4;  ///< of an element of scratch
  std::int64_t granule_m = 16;     ///< tile_m is a multiple of this panel: vector lanes × vectors of the microkernel
  std::int64_t granule_n = 8;      ///< and tile_n of this
  std::int64_t max_tile_n = INT64_MAX;  ///< what the kernel asks for besides, a multiple of granule_n
};

/// The request of a problem's longest sequence.
CpuTileRequest cpu_tile_request(const Problem& problem, std::int64_t compute_bytes, std::int64_t granule_m,
                                std::int64_t granule_n);

/// Elements of scratch that one thread works in. Forward: Q, O, K and V twice, the scores of one panel of rows.
/// Backward: K, V, dK, dV, Q and dO twice, P and dS.
std::int64_t cpu_scratch_elements(Pass pass, std::int64_t tile_m, std::int64_t tile_n, std::int64_t head_dim,
                                  std::int64_t head_dim_v, std::int64_t panel);

/// Bytes of scratch that a kernel takes for a tile. It grows with both numbers.
using ScratchBytes = std::function<std::int64_t(std::int64_t tile_m, std::int64_t tile_n)>;

/// Scratch that a tile may fill: half of the L2 cache, and never more than 512 KiB.
std::int64_t cpu_scratch_budget(const CacheSizes& caches);

/// Cycles that one core spends for each row of a tile (forward: a query row, backward: a key), as the model counts.
double cpu_tile_cost(const CpuTileRequest& request, std::int64_t tile_m, std::int64_t tile_n, const CacheSizes& caches);

/// tile_m counts rows: queries × rows_per_query. When not even one granule fits the budget, one granule it is.
TileConfig choose_cpu_tile(const CpuTileRequest& request, const CacheSizes& caches, const ScratchBytes& scratch);

/// The same by cpu_scratch_elements(), for kernels that keep little besides.
TileConfig choose_cpu_tile(const CpuTileRequest& request, const CacheSizes& caches);

}  // namespace onchip::model
