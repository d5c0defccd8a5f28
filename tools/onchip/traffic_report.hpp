// What onchip traffic found, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/roofline.hpp"
#include "model/tile_options.hpp"

namespace onchip::cli {

struct TrafficReport {
  model::Machine machine;
  model::AttentionShape shape;
  Pass pass = Pass::forward;
  DType score_dtype = DType::f32;
  std::vector<model::StandardKernel> kernels;
  model::Traffic standard;
  model::Roofline standard_roofline;
  std::optional<model::TileOption> tiled;  ///< nothing fits: none
  model::Roofline tiled_roofline;
  std::vector<model::TileOption> options;
};

std::string traffic_text(const TrafficReport& report);
std::string traffic_json(const TrafficReport& report);

}  // namespace onchip::cli
