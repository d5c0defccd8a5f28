#include "model/machine.hpp"

#include <algorithm>
#include <cctype>

namespace onchip::model {
namespace {

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

}  // namespace

std::size_t Machine::tile_level() const {
  std::size_t level = 0;
  while (level + 1 < main_level() && !levels[level + 1].shared) ++level;
  return level;
}

double Machine::reuse_capacity() const {
  return has_shared_cache() ? effective_share * levels[main_level() - 1].capacity_bytes
                            : levels[tile_level()].capacity_bytes;
}

double Machine::peak_flops(DType type) const {
  const auto first_known = [](std::initializer_list<double> peaks) {
    for (const double value : peaks)
      if (value > 0) return value;
    return 0.0;
  };
  switch (type) {
    case DType::f64:
      return peak.f64;
    case DType::bf16:
      return first_known({peak.bf16, peak.f32});
    case DType::f16:
      return first_known({peak.f16, peak.f32});
    case DType::e4m3:
    case DType::e5m2:
      return first_known({peak.fp8, peak.bf16, peak.f32});
    case DType::i8:
      return first_known({peak.i8, peak.bf16, peak.f32});
    case DType::f32:
    case DType::i32:
    case DType::boolean:
      break;
  }
  return peak.f32;
}

const Machine* find_machine(const std::string& name) {
  for (const Machine& machine : known_machines())
    if (upper(machine.name) == upper(name)) return &machine;
  return nullptr;
}

Machine gpu_machine(const std::string& name, std::int64_t units, double shared_memory_bytes, double l2_bytes) {
  Machine machine;
  machine.kind = MachineKind::gpu;
  machine.levels = {{"shared memory", 0, false, 0}, {"L2", 0, true, 0}, {"DRAM", 0, true, 0}};
  machine.block = {.queries = 32, .keys = 64, .p_in_registers = true};
  machine.effective_share = 0.75;
  for (const Machine& known : known_machines())
    if (known.kind == MachineKind::gpu && upper(name).find(upper(known.name)) != std::string::npos) machine = known;
  machine.name = name;
  machine.units = units;
  machine.levels.front().capacity_bytes = shared_memory_bytes;
  machine.levels[machine.main_level() - 1].capacity_bytes = l2_bytes;
  return machine;
}

Machine cpu_machine(const std::string& name, std::int64_t cores, const CacheSizes& caches, const CpuPeaks& peaks) {
  Machine machine;
  machine.name = name;
  machine.kind = MachineKind::cpu;
  machine.units = cores;
  machine.levels = {{"L1", static_cast<double>(caches.l1_bytes), false, peaks.l1_bandwidth},
                    {"L2", static_cast<double>(caches.l2_bytes), false, peaks.l2_bandwidth}};
  if (caches.l3_bytes > 0)
    machine.levels.push_back({"L3", static_cast<double>(caches.l3_bytes), true, peaks.l3_bandwidth});
  machine.levels.push_back({"DRAM", 0, true, peaks.memory_bandwidth});
  machine.peak.f32 = peaks.f32_flops;
  machine.peak.f64 = peaks.f64_flops;
  machine.block = {.queries = 24, .keys = 6, .p_in_registers = false};
  machine.gemm = {.tile_m = 256, .tile_n = 256, .cluster = 1};
  machine.effective_share = 0.75;
  machine.write_allocate = true;
  return machine;
}

}  // namespace onchip::model
