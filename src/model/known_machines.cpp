// The machines known by name. Sources, all public:
//   units, clocks, peaks (dense, f32 accumulation), capacities, main memory bandwidth:
//     H100, H200   NVIDIA H100 Tensor Core GPU Architecture white paper; NVIDIA H200 data sheet. The H200's L2 size is
//                  what its driver reports.
//     A100         NVIDIA A100 Tensor Core GPU Architecture white paper (SXM, 80 GB)
//     B200         NVIDIA Blackwell (HGX B200) data sheet
//     RTX 4090     NVIDIA Ada GPU Architecture white paper
//     RTX 5090     NVIDIA RTX Blackwell GPU Architecture white paper
//   shared memory: 128 bytes a cycle for each SM; exponentials: 16 a cycle for each SM (CUDA C++ Programming Guide,
//     arithmetic instructions).
//   L2: 5,120 bytes a cycle on A100 (its white paper). No figure is published for the others: the same is assumed for
//     those with a split L2, half of it for the GeForce cards.
// effective_share was found on an H200 (docs/traffic.md) and is assumed for the others.
#include "model/machine.hpp"

namespace onchip::model {
namespace {

constexpr double kKiB = 1024, kMiB = 1024 * kKiB;
constexpr double kTera = 1e12;
constexpr double kSharedMemoryBytesPerCycle = 128;
constexpr double kSplitL2BytesPerCycle = 5120;
constexpr double kGeForceL2BytesPerCycle = 2560;

struct GpuFacts {
  const char* name;
  std::int64_t sms;
  double clock_hz;
  double shared_memory_bytes;  ///< that one thread block may use
  double l2_bytes;
  double l2_bytes_per_cycle;
  double memory_bandwidth;
  PeakFlops peak;
  RegisterBlock block;
  GemmTile gemm;
  int cache_partitions;
};

Machine gpu(const GpuFacts& facts) {
  Machine machine;
  machine.name = facts.name;
  machine.kind = MachineKind::gpu;
  machine.units = facts.sms;
  machine.clock_hz = facts.clock_hz;
  const double shared_bandwidth = static_cast<double>(facts.sms) * kSharedMemoryBytesPerCycle * facts.clock_hz;
  machine.levels = {{"shared memory", facts.shared_memory_bytes, false, shared_bandwidth},
                    {"L2", facts.l2_bytes, true, facts.l2_bytes_per_cycle * facts.clock_hz},
                    {"DRAM", 0, true, facts.memory_bandwidth}};
  machine.peak = facts.peak;
  machine.exp_per_cycle = 16;
  machine.register_bytes = 256 * kKiB;
  machine.block = facts.block;
  machine.gemm = facts.gemm;
  machine.effective_share = 0.75;
  machine.cache_partitions = facts.cache_partitions;
  return machine;
}

// Products of a warpgroup read B for 64 rows (Hopper), of a fifth-generation tensor core for 128; a warp's for 32.
constexpr RegisterBlock kWarpgroup{64, 176, true}, kTensorMemory{128, 128, true}, kWarp{32, 64, true};
constexpr GemmTile kClusterGemm{128, 256, 2}, kPlainGemm{128, 256, 1};

std::vector<Machine> make_machines() {
  const PeakFlops hopper{.f64 = 33.5 * kTera,
                         .f32 = 66.9 * kTera,
                         .bf16 = 989.4 * kTera,
                         .f16 = 989.4 * kTera,
                         .fp8 = 1978.9 * kTera,
                         .i8 = 1978.9 * kTera};
  const PeakFlops ampere{
      .f64 = 9.7 * kTera, .f32 = 19.5 * kTera, .bf16 = 312 * kTera, .f16 = 312 * kTera, .fp8 = 0, .i8 = 624 * kTera};
  const PeakFlops blackwell{.f64 = 37 * kTera,
                            .f32 = 75 * kTera,
                            .bf16 = 2250 * kTera,
                            .f16 = 2250 * kTera,
                            .fp8 = 4500 * kTera,
                            .i8 = 4500 * kTera};
  const PeakFlops ada{.f64 = 1.29 * kTera,
                      .f32 = 82.6 * kTera,
                      .bf16 = 165.2 * kTera,
                      .f16 = 165.2 * kTera,
                      .fp8 = 330.3 * kTera,
                      .i8 = 660.6 * kTera};
  const PeakFlops rtx_blackwell{.f64 = 1.64 * kTera,
                                .f32 = 104.8 * kTera,
                                .bf16 = 209.5 * kTera,
                                .f16 = 209.5 * kTera,
                                .fp8 = 419 * kTera,
                                .i8 = 838 * kTera};
  return {
      gpu({"H200", 132, 1.83e9, 227 * kKiB, 60 * kMiB, kSplitL2BytesPerCycle, 4.8 * kTera, hopper, kWarpgroup,
           kClusterGemm, 2}),
      gpu({"H100", 132, 1.83e9, 227 * kKiB, 50 * kMiB, kSplitL2BytesPerCycle, 3.35 * kTera, hopper, kWarpgroup,
           kClusterGemm, 2}),
      gpu({"A100", 108, 1.41e9, 163 * kKiB, 40 * kMiB, kSplitL2BytesPerCycle, 2.039 * kTera, ampere, kWarp, kPlainGemm,
           2}),
      gpu({"B200", 148, 1.85e9, 227 * kKiB, 126 * kMiB, kSplitL2BytesPerCycle, 8 * kTera, blackwell, kTensorMemory,
           kClusterGemm, 2}),
      gpu({"RTX4090", 128, 2.52e9, 99 * kKiB, 72 * kMiB, kGeForceL2BytesPerCycle, 1.008 * kTera, ada, kWarp, kPlainGemm,
           1}),
      gpu({"RTX5090", 170, 2.407e9, 99 * kKiB, 96 * kMiB, kGeForceL2BytesPerCycle, 1.792 * kTera, rtx_blackwell, kWarp,
           kPlainGemm, 1}),
  };
}

}  // namespace

const std::vector<Machine>& known_machines() {
  static const std::vector<Machine> machines = make_machines();
  return machines;
}

}  // namespace onchip::model
