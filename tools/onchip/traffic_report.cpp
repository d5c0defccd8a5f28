#include "onchip/traffic_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/machine_json.hpp"
#include "onchip/attention_options.hpp"
#include "onchip/measure.hpp"

namespace onchip::cli {
namespace {

using Json = nlohmann::ordered_json;

double tokens(const TrafficReport& r) {
  return static_cast<double>(std::max<std::int64_t>(1, r.shape.batch * r.shape.seqlen_q));
}

std::string rate_text(double flops_per_second) {
  return flops_per_second >= 1e12 ? fmt::format("{:.4g} TFLOP/s", flops_per_second / 1e12)
                                  : fmt::format("{:.4g} GFLOP/s", flops_per_second / 1e9);
}

std::string bandwidth_text(double bytes_per_second) {
  return bytes_per_second >= 1e12 ? fmt::format("{:.4g} TB/s", bytes_per_second / 1e12)
                                  : fmt::format("{:.4g} GB/s", bytes_per_second / 1e9);
}

std::string tile_text(const model::Tiling& tiling) { return fmt::format("{} × {}", tiling.tile_m, tiling.tile_n); }

std::string mask_text(const model::AttentionShape& shape) {
  if (shape.window_left < 0 && shape.window_right < 0) return "";
  if (shape.window_left < 0 && shape.window_right == 0) return ", causal";
  return fmt::format(", window {},{}", shape.window_left, shape.window_right);
}

std::string head_text(const TrafficReport& r) {
  const model::AttentionShape& s = r.shape;
  const model::Machine& m = r.machine;
  std::string text = fmt::format("{}: {} {}", m.name, m.units, m.kind == model::MachineKind::gpu ? "SMs" : "threads");
  if (m.peak_flops(s.dtype) > 0)
    text += fmt::format(", {} in {}", rate_text(m.peak_flops(s.dtype)), onchip::name(s.dtype));
  for (const model::Level& level : m.levels) {
    text += ", " + level.name;
    if (level.capacity_bytes > 0) text += " " + bytes_text(level.capacity_bytes);
    if (level.bandwidth > 0) text += " " + bandwidth_text(level.bandwidth);
  }
  const std::string types = s.dtype == s.kv_dtype
                                ? onchip::name(s.dtype)
                                : fmt::format("{}, cache {}", onchip::name(s.dtype), onchip::name(s.kv_dtype));
  return text + fmt::format("\n{}: B {}, Sq {}, Sk {}, heads {}/{}, D {}, Dv {}, {}{}\n\n", name(r.pass), s.batch,
                            s.seqlen_q, s.seqlen_k, s.num_heads_q, s.num_heads_kv, s.head_dim, s.head_dim_v, types,
                            mask_text(s));
}

constexpr const char* kLevelRow = "{:<22}{:>13}{:>13}{:>15}{:>13}\n";

std::string levels_text(const TrafficReport& r) {
  std::string text = fmt::format(fmt::runtime(kLevelRow), "", "standard", "",
                                 r.tiled ? "tiled " + tile_text(r.tiled->tiling) : "", "");
  text += fmt::format(fmt::runtime(kLevelRow), "bytes of one call", "read", "written", r.tiled ? "read" : "",
                      r.tiled ? "written" : "");
  const auto row = [&](const std::string& label, double unit, std::size_t level) {
    const model::LevelTraffic& a = r.standard.levels[level];
    const auto cell = [&](double bytes) { return bytes_text(bytes / unit); };
    text += fmt::format(fmt::runtime(kLevelRow), label, cell(a.read_bytes), cell(a.write_bytes),
                        r.tiled ? cell(r.tiled->traffic.levels[level].read_bytes) : "",
                        r.tiled ? cell(r.tiled->traffic.levels[level].write_bytes) : "");
  };
  for (std::size_t i = 0; i < r.machine.levels.size(); ++i) row("  " + r.machine.levels[i].name, 1, i);
  text += "bytes a token\n";
  for (std::size_t i = 0; i < r.machine.levels.size(); ++i) row("  " + r.machine.levels[i].name, tokens(r), i);
  return text;
}

std::string roofline_text(const TrafficReport& r) {
  constexpr const char* kRow = "{:<22}{:>26}{:>28}\n";
  std::string text = "\n";
  const auto row = [&](const char* label, const std::string& standard, const std::string& tiled) {
    text += fmt::format(fmt::runtime(kRow), label, standard, r.tiled ? tiled : "");
  };
  const model::Traffic none;
  const model::Traffic& tiled = r.tiled ? r.tiled->traffic : none;
  row("written later", bytes_text(r.standard.dirty_bytes), bytes_text(tiled.dirty_bytes));
  row("memory for scratch", bytes_text(r.standard.extra_bytes), bytes_text(tiled.extra_bytes));
  row("work", fmt::format("{:.4g} GFLOP", r.standard.flops / 1e9), fmt::format("{:.4g} GFLOP", tiled.flops / 1e9));
  row("intensity, FLOP/byte", fmt::format("{:.4g}", r.standard_roofline.intensity),
      fmt::format("{:.4g}", r.tiled_roofline.intensity));
  if (r.standard_roofline.bound.empty()) return text;
  row("at least", time_text(r.standard_roofline.seconds), time_text(r.tiled_roofline.seconds));
  row("at most", rate_text(r.standard_roofline.flops_per_second), rate_text(r.tiled_roofline.flops_per_second));
  row("bound by", r.standard_roofline.bound, r.tiled_roofline.bound);
  return text;
}

std::string kernels_text(const TrafficReport& r) {
  constexpr const char* kRow = "  {:<20}{:>13}{:>13}\n";
  std::string text =
      fmt::format("\n{:<22}{:>13}{:>13}\n", "standard, by kernel", r.machine.levels.back().name + " read", "written");
  for (const model::StandardKernel& kernel : r.kernels)
    text += fmt::format(fmt::runtime(kRow), kernel.name, bytes_text(kernel.traffic.main_memory().read_bytes),
                        bytes_text(kernel.traffic.main_memory().write_bytes));
  return text;
}

std::string options_text(const TrafficReport& r) {
  constexpr const char* kRow = "  {:<14}{:>12}{:>6}{:>14}{:>14}{:>12}\n";
  const std::size_t main = r.machine.main_level();
  const model::OnChipRoom room = model::on_chip_room(r.machine);
  std::string text =
      fmt::format("\nTiles, in {} of {}", bytes_text(room.bytes), r.machine.levels[r.machine.tile_level()].name);
  if (room.register_bytes > 0) text += fmt::format(" and {} of registers", bytes_text(room.register_bytes));
  text += "\n" + fmt::format(fmt::runtime(kRow), "tile", "on chip", "fits",
                             main > 0 ? r.machine.levels[main - 1].name : "", r.machine.levels[main].name, "at least");
  for (const model::TileOption& option : r.options)
    text += fmt::format(fmt::runtime(kRow), tile_text(option.tiling), bytes_text(option.on_chip_bytes),
                        option.fits ? "yes" : "no", bytes_text(option.traffic.levels[main - 1].total()),
                        bytes_text(option.traffic.main_memory().total()),
                        option.seconds > 0 ? time_text(option.seconds) : "–");
  return text;
}

Json roofline_json(const model::Roofline& roofline) {
  Json json;
  json["flops_per_byte"] = roofline.intensity;
  json["seconds_at_least"] = roofline.seconds;
  json["flops_per_second_at_most"] = roofline.flops_per_second;
  json["bound_by"] = roofline.bound;
  json["busy_seconds"] = Json::object();
  for (const model::RooflineTerm& term : roofline.terms) json["busy_seconds"][term.resource] = term.seconds;
  return json;
}

Json traffic_part(const TrafficReport& r, const model::Traffic& traffic) {
  Json json;
  json["levels"] = Json::array();
  for (std::size_t i = 0; i < traffic.levels.size(); ++i) {
    const model::LevelTraffic& level = traffic.levels[i];
    json["levels"].push_back({{"name", r.machine.levels[i].name},
                              {"read_bytes", level.read_bytes},
                              {"write_bytes", level.write_bytes},
                              {"read_bytes_per_token", level.read_bytes / tokens(r)},
                              {"write_bytes_per_token", level.write_bytes / tokens(r)}});
  }
  json["written_later_bytes"] = traffic.dirty_bytes;
  json["scratch_bytes"] = traffic.extra_bytes;
  json["flops"] = traffic.flops;
  return json;
}

Json tile_json(const model::Tiling& t) {
  return {{"tile_m", t.tile_m},
          {"tile_n", t.tile_n},
          {"cluster", t.cluster},
          {"heads_per_tile", t.heads_per_tile},
          {"num_splits", t.num_splits}};
}

}  // namespace

std::string traffic_text(const TrafficReport& r) {
  return head_text(r) + levels_text(r) + roofline_text(r) + kernels_text(r) + options_text(r);
}

std::string traffic_json(const TrafficReport& r) {
  const model::AttentionShape& s = r.shape;
  Json json;
  json["machine"] = Json::parse(model::machine_to_json(r.machine));
  json["pass"] = name(r.pass);
  json["shape"] = {{"batch", s.batch},
                   {"seqlen_q", s.seqlen_q},
                   {"seqlen_k", s.seqlen_k},
                   {"num_heads_q", s.num_heads_q},
                   {"num_heads_kv", s.num_heads_kv},
                   {"head_dim", s.head_dim},
                   {"head_dim_v", s.head_dim_v},
                   {"window_left", s.window_left},
                   {"window_right", s.window_right},
                   {"dtype", onchip::name(s.dtype)},
                   {"kv_dtype", onchip::name(s.kv_dtype)}};
  json["standard"] = traffic_part(r, r.standard);
  json["standard"]["score_dtype"] = onchip::name(r.score_dtype);
  json["standard"]["roofline"] = roofline_json(r.standard_roofline);
  json["standard"]["kernels"] = Json::array();
  for (const model::StandardKernel& kernel : r.kernels) {
    Json entry = {{"name", kernel.name}};
    entry.update(traffic_part(r, kernel.traffic));
    json["standard"]["kernels"].push_back(entry);
  }
  json["tiled"] = nullptr;
  if (r.tiled) {
    json["tiled"] = traffic_part(r, r.tiled->traffic);
    json["tiled"]["tile"] = tile_json(r.tiled->tiling);
    json["tiled"]["roofline"] = roofline_json(r.tiled_roofline);
  }
  json["tiles"] = Json::array();
  for (const model::TileOption& option : r.options) {
    Json entry = {{"tile", tile_json(option.tiling)},
                  {"on_chip_bytes", option.on_chip_bytes},
                  {"register_bytes", option.register_bytes},
                  {"fits", option.fits},
                  {"seconds_at_least", option.seconds}};
    entry["levels"] = traffic_part(r, option.traffic)["levels"];
    json["tiles"].push_back(entry);
  }
  return json.dump(2) + "\n";
}

}  // namespace onchip::cli
