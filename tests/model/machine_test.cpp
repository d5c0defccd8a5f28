#include "model/machine.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "model/roofline.hpp"

namespace onchip::model {
namespace {

TEST(KnownMachines, AreFoundByNameInAnyCase) {
  for (const char* name : {"H200", "h100", "A100", "b200", "RTX4090", "rtx5090"})
    EXPECT_NE(find_machine(name), nullptr) << name;
  EXPECT_EQ(find_machine("H300"), nullptr);
  EXPECT_EQ(find_machine(""), nullptr);
}

TEST(KnownMachines, ArePlausible) {
  for (const Machine& machine : known_machines()) {
    SCOPED_TRACE(machine.name);
    ASSERT_EQ(machine.levels.size(), 3u);
    EXPECT_EQ(machine.tile_level(), 0u);
    EXPECT_TRUE(machine.has_shared_cache());
    for (std::size_t i = 1; i < machine.levels.size(); ++i)
      EXPECT_LT(machine.levels[i].bandwidth, machine.levels[i - 1].bandwidth) << machine.levels[i].name;
    EXPECT_GT(machine.levels[1].capacity_bytes, machine.levels[0].capacity_bytes);
    EXPECT_GT(machine.peak_flops(DType::bf16), machine.peak_flops(DType::f32));
    EXPECT_GE(machine.peak_flops(DType::e4m3), machine.peak_flops(DType::bf16));
    // Dense tensor-core FLOPs a cycle and SM are a power of two: the data sheet's clock is the one that is used here.
    const double per_cycle = machine.peak_flops(DType::bf16) / (static_cast<double>(machine.units) * machine.clock_hz);
    const double nearest = std::exp2(std::round(std::log2(per_cycle)));
    EXPECT_NEAR(per_cycle / nearest, 1, 0.01) << per_cycle;
  }
}

TEST(CpuMachine, LevelsFollowTheCaches) {
  const Machine with_l3 = cpu_machine("x", 8, {48 << 10, 2 << 20, 32 << 20, 64}, {});
  ASSERT_EQ(with_l3.levels.size(), 4u);
  EXPECT_EQ(with_l3.levels[with_l3.tile_level()].name, "L2");
  EXPECT_EQ(with_l3.reuse_capacity(), 0.75 * (32 << 20));
  const Machine without = cpu_machine("x", 8, {64 << 10, 4 << 20, 0, 64}, {});
  ASSERT_EQ(without.levels.size(), 3u);
  EXPECT_FALSE(without.has_shared_cache());
  EXPECT_EQ(without.reuse_capacity(), 4 << 20);
}

TEST(Machine, TypesWithoutAPeakOfTheirOwnUseTheTypeTheyAreComputedIn) {
  Machine machine;
  machine.peak = {.f64 = 1, .f32 = 2, .bf16 = 0, .f16 = 8, .fp8 = 0, .i8 = 0};
  EXPECT_EQ(machine.peak_flops(DType::bf16), 2);
  EXPECT_EQ(machine.peak_flops(DType::f16), 8);
  EXPECT_EQ(machine.peak_flops(DType::e5m2), 2);
  EXPECT_EQ(machine.peak_flops(DType::f64), 1);
}

Machine roofline_machine() {
  Machine machine;
  machine.units = 2;
  machine.clock_hz = 10;
  machine.exp_per_cycle = 5;
  machine.levels = {{"near", 100, false, 50}, {"memory", 0, true, 4}};
  machine.peak.f32 = 1000;
  return machine;
}

Traffic roofline_traffic() {
  Traffic t;
  t.levels = {{200, 100}, {30, 10}};
  t.flops = 2000;
  t.exponentials = 100;
  return t;
}

TEST(Roofline, TheSlowestResourceBinds) {
  const Roofline r = roofline(roofline_machine(), roofline_traffic(), DType::f32);
  ASSERT_EQ(r.terms.size(), 4u);
  EXPECT_EQ(r.terms[0].seconds, 2);
  EXPECT_EQ(r.terms[1].seconds, 1);
  EXPECT_EQ(r.terms[2].seconds, 6);
  EXPECT_EQ(r.terms[3].seconds, 10);
  EXPECT_EQ(r.bound, "memory");
  EXPECT_EQ(r.seconds, 10);
  EXPECT_EQ(r.flops_per_second, 200);
  EXPECT_EQ(r.intensity, 50);
}

TEST(Roofline, UnknownSpeedsDoNotBind) {
  Machine machine = roofline_machine();
  machine.levels[1].bandwidth = 0;
  EXPECT_EQ(roofline(machine, roofline_traffic(), DType::f32).bound, "near");
  machine.levels[0].bandwidth = machine.peak.f32 = machine.exp_per_cycle = 0;
  const Roofline none = roofline(machine, roofline_traffic(), DType::f32);
  EXPECT_EQ(none.bound, "");
  EXPECT_EQ(none.seconds, 0);
  EXPECT_EQ(none.flops_per_second, 0);
}

TEST(Roofline, KernelsOneAfterAnotherAddUp) {
  const std::vector<StandardKernel> kernels{{"a", roofline_traffic()}, {"b", roofline_traffic()}};
  const Roofline r = roofline(roofline_machine(), kernels, DType::f32);
  EXPECT_EQ(r.seconds, 20);
  EXPECT_EQ(r.intensity, 50);
  EXPECT_EQ(r.bound, "memory");
}

}  // namespace
}  // namespace onchip::model
