#include "cpu/measure.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "core/threads.hpp"
#include "cpu/host.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/measure.cpp"
#include "cpu/simd/targets.hpp"  // before Highway
#include "hwy/foreach_target.h"
//
#include "cpu/simd/gemm-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Twelve chains hide the latency of two units and leave room for their factors in sixteen registers. They are named
/// one by one because SVE vectors cannot be array elements, and start apart because a compiler makes one of equal ones.
template <typename T>
T multiply_add(int64_t rounds, T factor_value, T term_value, int64_t* flops) {
  const hn::ScalableTag<T> d;
  const auto factor = hn::Set(d, factor_value), term = hn::Set(d, term_value);
  auto c0 = hn::Iota(d, T(0)), c1 = hn::Iota(d, T(1)), c2 = hn::Iota(d, T(2)), c3 = hn::Iota(d, T(3));
  auto c4 = hn::Iota(d, T(4)), c5 = hn::Iota(d, T(5)), c6 = hn::Iota(d, T(6)), c7 = hn::Iota(d, T(7));
  auto c8 = hn::Iota(d, T(8)), c9 = hn::Iota(d, T(9)), c10 = hn::Iota(d, T(10)), c11 = hn::Iota(d, T(11));
  for (int64_t i = 0; i < rounds; ++i) {
    c0 = hn::MulAdd(c0, factor, term);
    c1 = hn::MulAdd(c1, factor, term);
    c2 = hn::MulAdd(c2, factor, term);
    c3 = hn::MulAdd(c3, factor, term);
    c4 = hn::MulAdd(c4, factor, term);
    c5 = hn::MulAdd(c5, factor, term);
    c6 = hn::MulAdd(c6, factor, term);
    c7 = hn::MulAdd(c7, factor, term);
    c8 = hn::MulAdd(c8, factor, term);
    c9 = hn::MulAdd(c9, factor, term);
    c10 = hn::MulAdd(c10, factor, term);
    c11 = hn::MulAdd(c11, factor, term);
  }
  *flops = rounds * 12 * 2 * static_cast<int64_t>(hn::Lanes(d));
  const auto low = hn::Add(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)), hn::Add(c4, c5));
  const auto high = hn::Add(hn::Add(hn::Add(c6, c7), hn::Add(c8, c9)), hn::Add(c10, c11));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
}

float multiply_add_f32(int64_t rounds, float factor, float term, int64_t* flops) {
  return multiply_add<float>(rounds, factor, term, flops);
}
double multiply_add_f64(int64_t rounds, double factor, double term, int64_t* flops) {
  return multiply_add<double>(rounds, factor, term, flops);
}

/// Reads `count` floats, a multiple of eight vectors, and returns something that depends on each.
float read_all(const float* data, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (int64_t i = 0; i + 8 * lanes <= count; i += 8 * lanes) {
    s0 = hn::Add(s0, hn::Load(d, data + i));
    s1 = hn::Add(s1, hn::Load(d, data + i + lanes));
    s2 = hn::Add(s2, hn::Load(d, data + i + 2 * lanes));
    s3 = hn::Add(s3, hn::Load(d, data + i + 3 * lanes));
    s4 = hn::Add(s4, hn::Load(d, data + i + 4 * lanes));
    s5 = hn::Add(s5, hn::Load(d, data + i + 5 * lanes));
    s6 = hn::Add(s6, hn::Load(d, data + i + 6 * lanes));
    s7 = hn::Add(s7, hn::Load(d, data + i + 7 * lanes));
  }
  const auto sum = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// What the products of the kernels keep in registers.
model::RegisterBlock register_block() {
  const auto lanes = static_cast<double>(vector_lanes<float>());
  return {.queries = kPanelVectors * lanes, .keys = max_block_rows(kPanelVectors), .p_in_registers = false};
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onchip::cpu {
namespace {

HWY_EXPORT(multiply_add_f32);
HWY_EXPORT(multiply_add_f64);
HWY_EXPORT(read_all);
HWY_EXPORT(register_block);

// One try is long enough to time, and short enough to end, now and then, before the system gives the core to others.
using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kOneTry{4};
constexpr std::chrono::milliseconds kLongestWait{50};
constexpr int kTries = 16;
constexpr std::int64_t kChainRounds = 10'000;
constexpr std::int64_t kBytesBetweenLooks = 256 << 10;  // at the clock
constexpr std::int64_t kBufferGranule = 16 << 10;       // a multiple of eight vectors of any target

struct Free {
  void operator()(float* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<float, Free>;

/// What one thread did in a try, and its result, kept so that the work is not optimised away. One cache line each.
struct alignas(128) Share {
  double rate = 0;
  double result = 0;
};

/// Waits until all threads are here, so that they share what they share; not for ever, as there may be fewer.
void wait_for_all(std::atomic<int>& arrived, int num_threads) {
  ++arrived;
  const auto limit = Clock::now() + kLongestWait;
  while (arrived < num_threads && Clock::now() < limit) std::this_thread::yield();
}

/// Best sum over threads of how much work(thread, result) does in a second, where each call returns what it did.
template <typename Work>
double best_rate(int num_threads, Work&& work) {
  std::vector<Share> shares(static_cast<std::size_t>(num_threads));
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    std::atomic<int> arrived{0};
    parallel_tasks(num_threads, num_threads, [&](std::int64_t task, int) {
      Share& share = shares[static_cast<std::size_t>(task)];
      wait_for_all(arrived, num_threads);
      const auto start = Clock::now();
      auto now = start;
      double amount = 0;
      for (; now - start < kOneTry; now = Clock::now()) amount += work(static_cast<std::size_t>(task), share.result);
      share.rate = amount / std::chrono::duration<double>(now - start).count();
    });
    double sum = 0;
    for (const Share& share : shares) sum += share.rate;
    best = std::max(best, sum);
  }
  return best;
}

std::int64_t round_down(std::int64_t bytes) {
  return std::max(kBufferGranule, bytes / kBufferGranule * kBufferGranule);
}

}  // namespace

double measure_flops(DType type, int num_threads) {
  volatile double factor = 0.999, term = 0.5;  // not known when compiling; results stay near 500
  return best_rate(num_threads, [&](std::size_t, double& result) {
    std::int64_t flops = 0;
    const double a = factor, b = term;
    if (type == DType::f64)
      result = HWY_DYNAMIC_DISPATCH(multiply_add_f64)(kChainRounds, a, b, &flops);
    else
      result =
          HWY_DYNAMIC_DISPATCH(multiply_add_f32)(kChainRounds, static_cast<float>(a), static_cast<float>(b), &flops);
    return static_cast<double>(flops);
  });
}

double measure_read_bandwidth(std::int64_t bytes, int num_threads) {
  bytes = round_down(bytes);
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  std::vector<Buffer> buffers(static_cast<std::size_t>(num_threads));
  for (Buffer& buffer : buffers) {
    buffer.reset(static_cast<float*>(std::aligned_alloc(4096, static_cast<std::size_t>(bytes))));
    if (!buffer) return 0;
  }
  parallel_tasks(num_threads, num_threads, [&](std::int64_t task, int) {
    std::fill_n(buffers[static_cast<std::size_t>(task)].get(), bytes / kFloat, 1.0f);
  });
  // A large buffer is read in parts, one after another, a small one several times.
  const std::int64_t part = std::min(bytes, kBytesBetweenLooks), repeats = kBytesBetweenLooks / part;
  std::vector<std::int64_t> next(static_cast<std::size_t>(num_threads) * 16, 0);  // a cache line apart
  return best_rate(num_threads, [&](std::size_t thread, double& result) {
    std::int64_t& offset = next[thread * 16];
    if (offset + part > bytes) offset = 0;
    for (std::int64_t i = 0; i < repeats; ++i)
      result = HWY_DYNAMIC_DISPATCH(read_all)(buffers[thread].get() + offset / kFloat, part / kFloat);
    offset += part;
    return static_cast<double>(repeats * part);
  });
}

BufferSizes measuring_buffers(const model::CacheSizes& caches, std::int64_t memory_bytes, int num_threads) {
  BufferSizes sizes;
  sizes.l1 = round_down(caches.l1_bytes / 2);
  sizes.l2 = round_down(caches.l2_bytes / 2);
  const std::int64_t l3 = caches.l3_bytes / 2 / num_threads;
  if (l3 >= 2 * caches.l2_bytes) sizes.l3 = round_down(std::min(l3, 4 * caches.l2_bytes));
  const std::int64_t last = std::max(caches.l3_bytes, num_threads * caches.l2_bytes);
  sizes.memory = round_down(std::min(4 * last, memory_bytes / 8) / num_threads);
  return sizes;
}

model::CpuPeaks measure_peaks(int num_threads) {
  const BufferSizes sizes = measuring_buffers(host_caches(), memory_bytes(), num_threads);
  model::CpuPeaks peaks;
  peaks.f32_flops = measure_flops(DType::f32, num_threads);
  peaks.f64_flops = measure_flops(DType::f64, num_threads);
  peaks.l1_bandwidth = measure_read_bandwidth(sizes.l1, num_threads);
  peaks.l2_bandwidth = measure_read_bandwidth(sizes.l2, num_threads);
  if (sizes.l3 > 0) peaks.l3_bandwidth = measure_read_bandwidth(sizes.l3, num_threads);
  peaks.memory_bandwidth = measure_read_bandwidth(sizes.memory, num_threads);
  return peaks;
}

model::Machine host_machine(int num_threads, const model::CpuPeaks& peaks) {
  model::Machine machine = model::cpu_machine(cpu_name(), num_threads, host_caches(), peaks);
  machine.block = HWY_DYNAMIC_DISPATCH(register_block)();
  return machine;
}

}  // namespace onchip::cpu
#endif  // HWY_ONCE
