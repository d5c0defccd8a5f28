// What the present CPU is: read from the operating system once, with fallbacks where it does not say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/cache_sizes.hpp"

namespace onchip::cpu {

/// One cache as the operating system describes it.
struct CacheEntry {
  int level = 0;
  bool holds_data = false;
  std::int64_t size_bytes = 0;
  std::int64_t line_bytes = 0;
};

/// The caches listed below `directory`, a folder as /sys/devices/system/cpu/cpu0/cache. Entries that cannot be read
/// are left out.
std::vector<CacheEntry> read_cache_entries(const std::string& directory);

/// "48K" and "32M" in bytes; 0 when it is no size.
std::int64_t parse_cache_size(const std::string& text);

/// Sizes by level. A level that is missing, or smaller than the one above it, keeps its default; an L3 cache that is
/// missing while L2 is known does not exist.
model::CacheSizes cache_sizes(const std::vector<CacheEntry>& entries);

/// The caches of the first core that this process may run on; the same for the life of the process.
const model::CacheSizes& host_caches();

/// "AMD EPYC 7763", or the architecture where the system gives no name.
std::string cpu_name();

/// Cores that this process may run on, and cores of the machine.
struct CoreCount {
  int usable = 1;
  int online = 1;
};
CoreCount core_count();

/// Physical memory.
std::int64_t memory_bytes();

/// Vector instruction sets by Highway's names, best first: those this CPU has, and those the kernels are compiled for.
/// The kernels run with the first that is in both.
std::vector<std::string> supported_isas();
std::vector<std::string> compiled_isas();
std::string chosen_isa();

}  // namespace onchip::cpu
