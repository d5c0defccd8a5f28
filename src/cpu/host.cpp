#include "cpu/host.hpp"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "cpu/simd/targets.hpp"  // before Highway
#include "hwy/targets.h"

namespace onchip::cpu {
namespace {

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::int64_t number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 ? value : 0;
}

/// The lowest-numbered CPU that this process may run on.
int first_usable_cpu() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) return cpu;
  return 0;
}

/// What the C library knows, for systems without sysfs.
std::vector<CacheEntry> sysconf_cache_entries() {
  std::vector<CacheEntry> entries;
  const auto add = [&](int level, int size_name, int line_name) {
    const long size = sysconf(size_name), line = sysconf(line_name);
    if (size > 0) entries.push_back({level, true, size, line > 0 ? line : 0});
  };
  add(1, _SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL1_DCACHE_LINESIZE);
  add(2, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL2_CACHE_LINESIZE);
  add(3, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL3_CACHE_LINESIZE);
  return entries;
}

/// Highway gives better targets lower bits.
std::vector<std::string> isa_names(std::int64_t targets) {
  std::vector<std::string> names;
  for (; targets != 0; targets &= targets - 1) names.emplace_back(hwy::TargetName(targets & -targets));
  return names;
}

model::CacheSizes detect_caches() {
  const int cpu = first_usable_cpu();
  auto entries = read_cache_entries("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache");
  if (entries.empty()) entries = sysconf_cache_entries();
  return cache_sizes(entries);
}

}  // namespace

std::int64_t parse_cache_size(const std::string& text) {
  if (text.empty()) return 0;
  const char unit = text.back();
  if (unit == 'K') return number(text.substr(0, text.size() - 1)) << 10;
  if (unit == 'M') return number(text.substr(0, text.size() - 1)) << 20;
  return number(text);
}

std::vector<CacheEntry> read_cache_entries(const std::string& directory) {
  std::vector<CacheEntry> entries;
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(directory, error)) {
    if (!item.path().filename().string().starts_with("index")) continue;
    CacheEntry entry;
    entry.level = static_cast<int>(number(first_line(item.path() / "level")));
    const std::string type = first_line(item.path() / "type");
    entry.holds_data = type == "Data" || type == "Unified";
    entry.size_bytes = parse_cache_size(first_line(item.path() / "size"));
    entry.line_bytes = number(first_line(item.path() / "coherency_line_size"));
    if (entry.level > 0 && entry.size_bytes > 0) entries.push_back(entry);
  }
  return entries;
}

model::CacheSizes cache_sizes(const std::vector<CacheEntry>& entries) {
  std::int64_t by_level[4] = {};
  model::CacheSizes sizes;
  for (const CacheEntry& entry : entries) {
    if (!entry.holds_data || entry.level > 3) continue;
    by_level[entry.level] = entry.size_bytes;
    if (entry.level == 1 && entry.line_bytes > 0) sizes.line_bytes = entry.line_bytes;
  }
  if (by_level[1] > 0) sizes.l1_bytes = by_level[1];
  const bool l2_known = by_level[2] > sizes.l1_bytes;
  if (l2_known) sizes.l2_bytes = by_level[2];
  if (by_level[3] > sizes.l2_bytes)
    sizes.l3_bytes = by_level[3];
  else if (l2_known)
    sizes.l3_bytes = 0;
  return sizes;
}

const model::CacheSizes& host_caches() {
  static const model::CacheSizes sizes = detect_caches();
  return sizes;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname system;
  return uname(&system) == 0 ? system.machine : "unknown";
}

CoreCount core_count() {
  CoreCount count;
  count.online = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  cpu_set_t set;
  count.usable = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : count.online;
  return count;
}

std::int64_t memory_bytes() {
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(sysconf(_SC_PAGE_SIZE));
}

std::vector<std::string> supported_isas() { return isa_names(hwy::SupportedTargets()); }

std::vector<std::string> compiled_isas() { return isa_names(HWY_TARGETS); }

std::string chosen_isa() {
  const std::vector<std::string> usable = isa_names(hwy::SupportedTargets() & HWY_TARGETS);
  return usable.empty() ? "none" : usable.front();
}

}  // namespace onchip::cpu
