#include "cpu/measure.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/host.hpp"

namespace onchip::cpu {
namespace {

constexpr std::int64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;

TEST(MeasuringBuffers, LieInTheLevelTheyAreFor) {
  for (const int threads : {1, 2, 16, 128}) {
    const model::CacheSizes caches{48 * kKiB, 1 * kMiB, 256 * kMiB, 64};
    const BufferSizes sizes = measuring_buffers(caches, 512 * kGiB, threads);
    EXPECT_LE(sizes.l1, caches.l1_bytes);
    EXPECT_GT(sizes.l2, 2 * caches.l1_bytes);
    EXPECT_LT(sizes.l2, caches.l2_bytes);
    if (sizes.l3 > 0) {
      EXPECT_GE(sizes.l3, 2 * caches.l2_bytes);
      EXPECT_LT(sizes.l3 * threads, caches.l3_bytes);
    }
    EXPECT_GE(sizes.memory * threads, 4 * caches.l3_bytes);
  }
}

TEST(MeasuringBuffers, NoThirdLevelAndLittleMemory) {
  const model::CacheSizes caches{64 * kKiB, 4 * kMiB, 0, 64};
  EXPECT_EQ(measuring_buffers(caches, 64 * kGiB, 4).l3, 0);
  EXPECT_GE(measuring_buffers(caches, 64 * kGiB, 4).memory, 4 * caches.l2_bytes);
  EXPECT_LE(measuring_buffers({48 * kKiB, 1 * kMiB, 512 * kMiB, 64}, 1 * kGiB, 2).memory * 2, kGiB / 8);
}

TEST(Measure, EveryFigureIsThereAndPlausible) {
  for (const int threads : {1, core_count().usable}) {
    const model::CpuPeaks peaks = measure_peaks(threads);
    EXPECT_GT(peaks.f32_flops, 1e8);
    EXPECT_GT(peaks.f64_flops, 1e8);
    EXPECT_GT(peaks.l1_bandwidth, 1e8);
    EXPECT_GT(peaks.l2_bandwidth, 1e8);
    EXPECT_GT(peaks.memory_bandwidth, 1e8);
    for (const double bandwidth : {peaks.l1_bandwidth, peaks.l2_bandwidth, peaks.l3_bandwidth, peaks.memory_bandwidth})
      EXPECT_LT(bandwidth, threads * 1e13);
  }
}

TEST(Measure, HostMachineHasTheMeasuredPeaks) {
  const model::CpuPeaks peaks{.f32_flops = 7, .f64_flops = 3, .memory_bandwidth = 5};
  const model::Machine machine = host_machine(2, peaks);
  EXPECT_EQ(machine.units, 2);
  EXPECT_EQ(machine.peak_flops(DType::bf16), 7);
  EXPECT_EQ(machine.levels.back().bandwidth, 5);
  EXPECT_EQ(machine.levels.front().capacity_bytes, static_cast<double>(host_caches().l1_bytes));
}

TEST(Host, ChosenInstructionSetIsSupportedAndCompiled) {
  const auto contains = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  EXPECT_TRUE(contains(supported_isas(), chosen_isa()));
  EXPECT_TRUE(contains(compiled_isas(), chosen_isa()));
}

}  // namespace
}  // namespace onchip::cpu
