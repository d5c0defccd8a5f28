#include "core/explain.hpp"

#include <nlohmann/json.hpp>

namespace onchip {
namespace {

const char* name(Pass pass) { return pass == Pass::forward ? "forward" : "backward"; }

std::string tile_text(const TileConfig& tile) {
  std::string text;
  if (tile.tile_m > 0) text += fmt::format("{} queries × {} keys", tile.tile_m, tile.tile_n);
  if (tile.num_splits > 1) text += fmt::format("{}{} splits", text.empty() ? "" : ", ", tile.num_splits);
  if (tile.num_splits > 1 && tile.split_size > 0) text += fmt::format(" of {} keys", tile.split_size);
  return text.empty() ? "none" : text;
}

}  // namespace

std::string to_text(const Plan& plan) {
  std::string text = fmt::format("{} pass: {}\n", name(plan.pass), plan.implementation);
  text += fmt::format("  tile       {}\n", tile_text(plan.tile));
  text += fmt::format("  threads    {}\n", plan.num_threads);
  text += fmt::format("  workspace  {:.3f} MB\n", static_cast<double>(plan.workspace_bytes) / 1e6);
  text += fmt::format("  work       {:.3f} GFLOP\n", plan.predicted.flops / 1e9);
  text += fmt::format("  main memory, predicted  {:.3f} MB read, {:.3f} MB written\n",
                      plan.predicted.main_memory_read_bytes / 1e6, plan.predicted.main_memory_write_bytes / 1e6);
  for (const Rejection& rejection : plan.rejections)
    text += fmt::format("not {}: {}\n", rejection.implementation, rejection.reason);
  return text;
}

std::string to_json(const Plan& plan) {
  nlohmann::ordered_json json;
  json["pass"] = name(plan.pass);
  json["implementation"] = plan.implementation;
  json["tile"] = {{"tile_m", plan.tile.tile_m},
                  {"tile_n", plan.tile.tile_n},
                  {"num_splits", plan.tile.num_splits},
                  {"split_size", plan.tile.split_size}};
  json["num_threads"] = plan.num_threads;
  json["workspace_bytes"] = plan.workspace_bytes;
  json["predicted"] = {{"flops", plan.predicted.flops},
                       {"main_memory_read_bytes", plan.predicted.main_memory_read_bytes},
                       {"main_memory_write_bytes", plan.predicted.main_memory_write_bytes}};
  json["rejections"] = nlohmann::ordered_json::array();
  for (const Rejection& rejection : plan.rejections)
    json["rejections"].push_back({{"implementation", rejection.implementation}, {"reason", rejection.reason}});
  return json.dump(2);
}

}  // namespace onchip
