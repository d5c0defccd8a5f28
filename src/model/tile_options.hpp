// Which tiles fit on the chip of a machine, and what each would move.
#pragma once

#include <vector>

#include "model/roofline.hpp"
#include "model/traffic.hpp"

namespace onchip::model {

struct TileOption {
  Tiling tiling;
  double on_chip_bytes = 0;  ///< in shared memory, or in the core's own cache
  double register_bytes = 0;
  bool fits = false;
  Traffic traffic;
  double seconds = 0;  ///< bound by the slowest resource; 0 when no speed is known
};

/// What a tile needs and what there is: shared memory and registers of an SM, or half of a core's L2 cache.
struct OnChipRoom {
  double bytes = 0;
  double register_bytes = 0;  ///< 0: not a limit
};
OnChipRoom on_chip_room(const Machine& machine);
double on_chip_bytes(const Machine& machine, const AttentionShape& shape, const Tiling& tiling, Pass pass);
/// Accumulators, scores and probabilities, where they live in registers; else 0.
double accumulator_bytes(const Machine& machine, const AttentionShape& shape, const Tiling& tiling, Pass pass);
bool fits(const Machine& machine, const AttentionShape& shape, const Tiling& tiling, Pass pass);

TileOption tile_option(const Machine& machine, const AttentionShape& shape, const Tiling& tiling, Pass pass);

/// For each of a range of tile heights (backward: widths) the largest tile of the other side that fits, or, where none
/// fits, the smallest. `like` gives cluster and heads_per_tile.
std::vector<TileOption> tile_options(const Machine& machine, const AttentionShape& shape, const Tiling& like,
                                     Pass pass);

/// The one that fits and asks the shared levels for the fewest bytes; the smallest of equals. Null when none fits.
const TileOption* best_option(const std::vector<TileOption>& options);

}  // namespace onchip::model
