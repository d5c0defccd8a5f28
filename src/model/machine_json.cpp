#include "model/machine_json.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace onchip::model {
namespace {

using Json = nlohmann::ordered_json;

/// Reads fields of one JSON object and remembers the first fault. Fields that nobody asked for are a fault too, so that
/// a misspelled name does not pass for a default.
class Reader {
 public:
  Reader(const Json& object, std::string path, Status& status)
      : object_(object), path_(std::move(path)), status_(status) {
    if (!object_.is_object()) fail("", object_, "an object");
  }

  double number(const char* field, double least, double fallback) { return read_number(field, least, fallback, false); }
  double required_number(const char* field, double least) { return read_number(field, least, 0, true); }

  std::string required_text(const char* field) {
    const Json* value = find(field, true);
    if (value == nullptr) return "";
    if (!value->is_string() || value->get<std::string>().empty()) {
      fail(field, *value, "a text");
      return "";
    }
    return value->get<std::string>();
  }

  bool flag(const char* field, bool fallback) {
    const Json* value = find(field, false);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) {
      fail(field, *value, "true or false");
      return fallback;
    }
    return value->get<bool>();
  }

  /// Null where it is absent.
  const Json* part(const char* field, bool required) { return find(field, required); }

  void refuse_unknown_fields() {
    if (!status_.ok()) return;
    for (const auto& [name, value] : object_.items())
      if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) {
        status_ = invalid("machine: unknown field '{}{}'", path_, name);
        return;
      }
  }

  void fail(const std::string& field, const Json& value, const char* expected) {
    if (!status_.ok()) return;
    std::string shown = value.dump();
    if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
    std::string where = path_ + field;
    if (!where.empty() && where.back() == '.') where.pop_back();
    status_ = invalid("machine: {}{}{}, expected {}", where, where.empty() ? "" : " is ", shown, expected);
  }

 private:
  const Json* find(const char* field, bool required) {
    asked_.emplace_back(field);
    if (!status_.ok()) return nullptr;
    const auto found = object_.find(field);
    if (found != object_.end()) return &*found;
    if (required) status_ = invalid("machine: {}{} is missing", path_, field);
    return nullptr;
  }

  double read_number(const char* field, double least, double fallback, bool required) {
    const Json* value = find(field, required);
    if (value == nullptr) return fallback;
    const double number = value->is_number() ? value->get<double>() : std::nan("");
    if (!(number >= least) || !std::isfinite(number)) {
      fail(field, *value, least > 0 ? fmt::format("a number of at least {}", least).c_str() : "a number, 0 or more");
      return fallback;
    }
    return number;
  }

  const Json& object_;
  std::string path_;
  Status& status_;
  std::vector<std::string> asked_;
};

void read_level(const Json& json, const std::string& path, Status& status, Level& level) {
  Reader reader(json, path, status);
  if (!status.ok()) return;
  level.name = reader.required_text("name");
  level.capacity_bytes = reader.number("capacity_bytes", 0, 0);
  level.shared = reader.flag("shared", false);
  level.bandwidth = reader.number("bandwidth", 0, 0);
  reader.refuse_unknown_fields();
}

Status check_levels(const std::vector<Level>& levels) {
  if (levels.size() < 2)
    return invalid("machine: levels has {} entries, expected a unit's own memory and main memory at least",
                   levels.size());
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const bool is_main = i + 1 == levels.size(), may_share = i + 2 >= levels.size();
    if (levels[i].shared && (!may_share || i == 0))
      return invalid("machine: levels[{}] ('{}') is shared, expected only main memory and one cache before it to be", i,
                     levels[i].name);
    if (is_main && !levels[i].shared)
      return invalid("machine: levels[{}] ('{}') is not shared, expected main memory to be last and shared", i,
                     levels[i].name);
    if (!is_main && levels[i].capacity_bytes <= 0)
      return invalid("machine: levels[{}].capacity_bytes is 0, expected the size of '{}'", i, levels[i].name);
  }
  return {};
}

void read_peaks(const Json& json, Status& status, PeakFlops& peak) {
  Reader reader(json, "peak_flops.", status);
  if (!status.ok()) return;
  peak.f64 = reader.number("f64", 0, 0);
  peak.f32 = reader.number("f32", 0, 0);
  peak.bf16 = reader.number("bf16", 0, 0);
  peak.f16 = reader.number("f16", 0, 0);
  peak.fp8 = reader.number("fp8", 0, 0);
  peak.i8 = reader.number("i8", 0, 0);
  reader.refuse_unknown_fields();
}

void read_block(const Json& json, Status& status, RegisterBlock& block) {
  Reader reader(json, "register_block.", status);
  if (!status.ok()) return;
  block.queries = reader.number("queries", 1, block.queries);
  block.keys = reader.number("keys", 1, block.keys);
  block.p_in_registers = reader.flag("p_in_registers", block.p_in_registers);
  reader.refuse_unknown_fields();
}

void read_gemm(const Json& json, Status& status, GemmTile& gemm) {
  Reader reader(json, "gemm_tile.", status);
  if (!status.ok()) return;
  gemm.tile_m = reader.number("tile_m", 1, gemm.tile_m);
  gemm.tile_n = reader.number("tile_n", 1, gemm.tile_n);
  gemm.cluster = reader.number("cluster", 1, gemm.cluster);
  reader.refuse_unknown_fields();
}

void read_levels(const Json& json, Reader& parent, Status& status, std::vector<Level>& levels) {
  if (!json.is_array()) {
    parent.fail("levels", json, "a list");
    return;
  }
  for (std::size_t i = 0; i < json.size() && status.ok(); ++i) {
    Level level;
    read_level(json[i], fmt::format("levels[{}].", i), status, level);
    levels.push_back(level);
  }
  if (status.ok()) status = check_levels(levels);
}

void read_machine(const Json& json, Status& status, Machine& machine) {
  Reader reader(json, "", status);
  if (!status.ok()) return;
  machine.name = reader.required_text("name");
  const std::string kind = reader.required_text("kind");
  if (status.ok() && kind != "gpu" && kind != "cpu")
    status = invalid("machine: kind is '{}', expected gpu or cpu", kind);
  machine.kind = kind == "cpu" ? MachineKind::cpu : MachineKind::gpu;
  machine.units = static_cast<std::int64_t>(std::min(1e9, reader.required_number("units", 1)));
  machine.clock_hz = reader.number("clock_hz", 0, 0);
  machine.exp_per_cycle = reader.number("exp_per_cycle", 0, 0);
  machine.register_bytes = reader.number("register_bytes", 0, 0);
  machine.effective_share = reader.number("effective_share", 0, 1);
  machine.cache_partitions = static_cast<int>(std::min(64.0, reader.number("cache_partitions", 1, 1)));
  machine.write_allocate = reader.flag("write_allocate", false);
  if (const Json* part = reader.part("levels", true)) read_levels(*part, reader, status, machine.levels);
  if (const Json* part = reader.part("peak_flops", false)) read_peaks(*part, status, machine.peak);
  if (const Json* part = reader.part("register_block", false)) read_block(*part, status, machine.block);
  if (const Json* part = reader.part("gemm_tile", false)) read_gemm(*part, status, machine.gemm);
  if (status.ok() && machine.effective_share > 1)
    status = invalid("machine: effective_share is {}, expected 0 to 1", machine.effective_share);
  reader.refuse_unknown_fields();
}

}  // namespace

Status machine_from_json(const std::string& text, Machine& machine) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return invalid("machine: not JSON, expected an object that describes a machine");
  Status status;
  Machine read;
  read_machine(json, status, read);
  if (status.ok()) machine = std::move(read);
  return status;
}

std::string machine_to_json(const Machine& machine) {
  Json json;
  json["name"] = machine.name;
  json["kind"] = machine.kind == MachineKind::gpu ? "gpu" : "cpu";
  json["units"] = machine.units;
  json["clock_hz"] = machine.clock_hz;
  json["levels"] = Json::array();
  for (const Level& level : machine.levels)
    json["levels"].push_back({{"name", level.name},
                              {"capacity_bytes", level.capacity_bytes},
                              {"shared", level.shared},
                              {"bandwidth", level.bandwidth}});
  const PeakFlops& peak = machine.peak;
  json["peak_flops"] = {{"f64", peak.f64}, {"f32", peak.f32}, {"bf16", peak.bf16},
                        {"f16", peak.f16}, {"fp8", peak.fp8}, {"i8", peak.i8}};
  json["exp_per_cycle"] = machine.exp_per_cycle;
  json["register_bytes"] = machine.register_bytes;
  json["register_block"] = {{"queries", machine.block.queries},
                            {"keys", machine.block.keys},
                            {"p_in_registers", machine.block.p_in_registers}};
  json["gemm_tile"] = {
      {"tile_m", machine.gemm.tile_m}, {"tile_n", machine.gemm.tile_n}, {"cluster", machine.gemm.cluster}};
  json["effective_share"] = machine.effective_share;
  json["cache_partitions"] = machine.cache_partitions;
  json["write_allocate"] = machine.write_allocate;
  return json.dump(2);
}

}  // namespace onchip::model
