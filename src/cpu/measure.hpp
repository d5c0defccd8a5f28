// Measured peaks of the present CPU: what a roofline, a benchmark and `onchip doctor` compare with. Each figure takes
// a fraction of a second and is the best of several tries, since other work on the machine can only lower it.
#pragma once

#include <cstdint>

#include "model/machine.hpp"

namespace onchip::cpu {

/// Multiply-add FLOP/s on registers, vectors as wide as the kernels use them. f64 or f32.
double measure_flops(DType type, int num_threads);

/// Bytes/s that all threads together read from buffers of their own, of `bytes` each, over and over.
double measure_read_bandwidth(std::int64_t bytes, int num_threads);

/// What each thread reads to measure a level: half of L1 or L2; more than L2 and at most half of L3 in all; four times
/// L3 in all, but no more than an eighth of physical memory.
struct BufferSizes {
  std::int64_t l1 = 0, l2 = 0, l3 = 0, memory = 0;  ///< l3 is 0 where there is no room for it between L2 and L3
};
BufferSizes measuring_buffers(const model::CacheSizes& caches, std::int64_t memory_bytes, int num_threads);

/// All of it, with num_threads threads.
model::CpuPeaks measure_peaks(int num_threads);

/// The present CPU as a machine of the traffic model.
model::Machine host_machine(int num_threads, const model::CpuPeaks& peaks);

}  // namespace onchip::cpu
