#include "model/traffic.hpp"

#include <algorithm>

namespace onchip::model {

void Traffic::add(const Traffic& other) {
  levels.resize(std::max(levels.size(), other.levels.size()));
  for (std::size_t i = 0; i < other.levels.size(); ++i) {
    levels[i].read_bytes += other.levels[i].read_bytes;
    levels[i].write_bytes += other.levels[i].write_bytes;
  }
  dirty_bytes += other.dirty_bytes;
  flops += other.flops;
  exponentials += other.exponentials;
  extra_bytes += other.extra_bytes;
}

double dirty_at_end(const Machine& machine, double written, double streamed) {
  if (!machine.has_shared_cache() || streamed <= 0) return 0;
  return written * std::min(1.0, machine.reuse_capacity() / streamed);
}

double partition_crossings(const Machine& machine, double shared, double private_bytes) {
  const double others = machine.cache_partitions - 1;
  return others * shared + others / machine.cache_partitions * private_bytes;
}

}  // namespace onchip::model
