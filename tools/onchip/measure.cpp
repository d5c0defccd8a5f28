#include "onchip/measure.hpp"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <fstream>

namespace onchip::cli {
namespace {

/// The value of a "Name:   123 kB" line, in bytes.
std::optional<std::size_t> kilobytes_line(const char* file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) * 1024;
  return std::nullopt;
}

/// Linear interpolation between the sorted values.
double quantile(const std::vector<double>& sorted, double share) {
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(position);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (position - static_cast<double>(low));
}

}  // namespace

Timing summarise(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  return {quantile(seconds, 0.5), quantile(seconds, 0.25), quantile(seconds, 0.75), seconds.size()};
}

MemoryMeter::MemoryMeter() {
  ::malloc_trim(0);  // what the allocator holds back would hide the next call's use
  std::ofstream reset("/proc/self/clear_refs");
  reset << "5" << std::flush;  // proc(5): the peak begins anew at the present size
  if (reset) start_ = kilobytes_line("/proc/self/status", "VmRSS");
}

std::optional<std::size_t> MemoryMeter::peak() const {
  const std::optional<std::size_t> highest = kilobytes_line("/proc/self/status", "VmHWM");
  if (!start_ || !highest) return std::nullopt;
  return *highest - std::min(*highest, *start_);
}

std::optional<std::size_t> available_memory() { return kilobytes_line("/proc/meminfo", "MemAvailable"); }

double predicted_bytes(const Plan& plan) {
  return plan.predicted.main_memory_read_bytes + plan.predicted.main_memory_write_bytes;
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.4g} µs", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

std::string bytes_text(double bytes) {
  if (bytes < 1e6) return fmt::format("{:.4g} kB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.4g} MB", bytes / 1e6);
  return fmt::format("{:.4g} GB", bytes / 1e9);
}

}  // namespace onchip::cli
