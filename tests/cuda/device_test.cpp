// The GPU against the float64 reference: random composition, lengths around tile sizes, large grids and tensors,
// graphs, streams, repeatability.
//
//   ONCHIP_GPU_CASES=N     random cases from the fixed list and from the fresh seed
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

#include "cuda/device_case.hpp"
#include "random/generator.hpp"

namespace onchip::test {
namespace {

int random_cases() {
  const char* given = std::getenv("ONCHIP_GPU_CASES");
  return given ? std::atoi(given) : 200;
}

/// Calls body(index, stream) for 0 … count−1 from several threads, each with the GPU and a stream of its own: most of
/// the time goes into compiling kernels.
template <typename Body>
void for_each_on_gpu(int count, const Body& body) {
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back([&] {
      use_gpu();
      const TestStream stream;
      for (int index = next++; index < count; index = next++) body(index, stream);
    });
  for (std::thread& thread : threads) thread.join();
}

void run_seeds(std::uint64_t first, int count) {
  std::mutex mutex;
  int ran = 0;
  for_each_on_gpu(count, [&](int index, const TestStream& stream) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(index);
    Case c = draw_case(seed);
    if (c.q.view().dtype == DType::f64) return;  // computed on the CPU
    const std::vector<std::string> failures = check_on_gpu(c, stream);
    const std::lock_guard lock(mutex);
    ++ran;
    for (const std::string& failure : failures)
      ADD_FAILURE() << "seed " << seed << ": " << failure << "\n  " << describe(c);
  });
  std::cout << ran << " of " << count << " cases are for the GPU\n";
}

struct Shape {
  DType type;
  std::int64_t batch, seqlen_q, seqlen_k, heads_q, heads_kv, head_dim, head_dim_v;
};

Case make_case(const Shape& s, std::uint64_t seed = 1) {
  Case c;
  Rng rng(seed);
  c.q = TensorBuffer(s.type, {s.batch, s.seqlen_q, s.heads_q, s.head_dim});
  c.k = TensorBuffer(s.type, {s.batch, s.seqlen_k, s.heads_kv, s.head_dim});
  c.v = TensorBuffer(s.type, {s.batch, s.seqlen_k, s.heads_kv, s.head_dim_v});
  for (TensorBuffer* tensor : {&c.q, &c.k, &c.v}) tensor->fill([&] { return rng.normal(); });
  add_results(c, false);
  return c;
}

void expect_right(Case& c, const TestStream& stream) {
  static std::mutex mutex;
  const std::vector<std::string> failures = check_on_gpu(c, stream);
  const std::lock_guard lock(mutex);
  for (const std::string& failure : failures) ADD_FAILURE() << failure << "\n  " << describe(c);
}

TEST(GpuRandomCases, FixedSeedsHoldTheErrorBound) {
  ONCHIP_SKIP_WITHOUT_GPU();
  run_seeds(1'000'000, random_cases());
}

TEST(GpuRandomCases, FreshSeedsHoldTheErrorBound) {
  ONCHIP_SKIP_WITHOUT_GPU();
  const std::uint64_t seed = (std::uint64_t{std::random_device{}()} << 20) + (std::uint64_t{1} << 52);
  std::cout << "fresh seed " << seed << "\n";
  run_seeds(seed, random_cases() / 4);
}

TEST(GpuLengths, AroundTilesHoldTheErrorBound) {
  ONCHIP_SKIP_WITHOUT_GPU();
  constexpr std::int64_t kLengths[] = {1, 2, 31, 63, 64, 65, 127, 128, 129, 251, 509};
  constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::f32};
  constexpr int kCount = static_cast<int>(std::size(kLengths) * std::size(kLengths) * std::size(kTypes) * 2);
  for_each_on_gpu(kCount, [&](int index, const TestStream& stream) {
    const int lengths = static_cast<int>(std::size(kLengths));
    const DType type = kTypes[index / 2 / lengths / lengths];
    Case c = make_case({type, 1, kLengths[index / 2 % lengths], kLengths[index / 2 / lengths % lengths], 2, 1, 64, 64});
    c.options.causal = index % 2 == 1;
    expect_right(c, stream);
  });
}

TEST(GpuLengths, LongOnesHoldTheErrorBound) {
  ONCHIP_SKIP_WITHOUT_GPU();
  constexpr std::int64_t kLengths[] = {4095, 4096, 4099};
  for_each_on_gpu(6, [&](int index, const TestStream& stream) {
    Case c = make_case({index % 2 ? DType::f16 : DType::bf16, 1, 1000, kLengths[index / 2], 1, 1, 128, 128});
    c.options.causal = index % 2 == 1;
    expect_right(c, stream);
  });
}

TEST(GpuLengths, LongQueriesHoldTheErrorBound) {
  ONCHIP_SKIP_WITHOUT_GPU();
  constexpr std::int64_t kLengths[] = {4095, 4099};
  for_each_on_gpu(4, [&](int index, const TestStream& stream) {
    Case c = make_case({index % 2 ? DType::f16 : DType::bf16, 1, kLengths[index / 2], 1013, 1, 1, 64, 64});
    c.options.causal = index % 2 == 1;
    expect_right(c, stream);
  });
}

/// Few queries over many keys, whose range is split: with every number of rows that changes the tile.
TEST(GpuSplits, HoldTheErrorBound) {
  ONCHIP_SKIP_WITHOUT_GPU();
  struct Setup {
    DType type;
    std::int64_t queries, keys, heads, kv_heads, d, dv;
  };
  std::vector<Setup> setups;
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const auto& [d, dv] :
         {std::pair<std::int64_t, std::int64_t>{64, 64}, {128, 128}, {96, 40}, {256, 256}, {576, 512}})
      for (const auto& [queries, heads] :
           {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 8}, {5, 4}, {17, 2}, {40, 1}, {130, 1}})
        setups.push_back({type, queries, 2053, heads, 1, d, dv});
  for_each_on_gpu(static_cast<int>(setups.size()), [&](int index, const TestStream& stream) {
    const Setup& s = setups[static_cast<std::size_t>(index)];
    Case c =
        make_case({s.type, 1, s.queries, s.keys, s.heads, s.kv_heads, s.d, s.dv}, static_cast<std::uint64_t>(index));
    c.options.causal = index % 2 == 1;
    if (index % 3 == 1) c.options.window_left = 700;
    if (index % 5 == 1) {
      c.sink = TensorBuffer(DType::f32, {s.heads});
      c.sink.fill([] { return 1.5; });
    }
    DeviceCase device(c);
    const Plan planned = plan(device.args(stream), Pass::forward);
    EXPECT_GT(planned.tile.num_splits, 1);
    EXPECT_GT(planned.workspace_bytes, 0u);
    expect_right(c, stream);
  });
}

/// A query head of its own for each of many sequences gets the same bits alone, as its split does not depend on them.
TEST(GpuSplits, OfFixedSizeDoNotDependOnTheBatch) {
  ONCHIP_SKIP_WITHOUT_GPU();
  use_gpu();
  const TestStream stream;
  Case all = make_case({DType::bf16, 50, 1, 5000, 8, 2, 128, 128});
  all.options.batch_invariant = true;
  const auto run = [&](Case& c) {
    const Outcome outcome = run_on_gpu(c, stream);
    ASSERT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.plan.tile.split_size, 2048);
  };
  run(all);
  Case one = make_case({DType::bf16, 1, 1, 5000, 8, 2, 128, 128});
  one.options.batch_invariant = true;
  for (const std::size_t sequence : {0, 17, 49}) {
    for (TensorBuffer Case::*tensor : {&Case::q, &Case::k, &Case::v}) {
      const std::vector<double> values = (all.*tensor).values();
      const auto size = static_cast<std::ptrdiff_t>(values.size() / 50);
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(sequence) * size;
      (one.*tensor).assign({begin, begin + size});
    }
    run(one);
    const std::vector<double> want = all.o.values(), got = one.o.values();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin() + static_cast<std::ptrdiff_t>(sequence * got.size())))
        << sequence;
  }
}

/// Small enough for compute-sanitizer: a case for each way through the kernels.
TEST(GpuSanitizer, SmallShapes) {
  ONCHIP_SKIP_WITHOUT_GPU();
  use_gpu();
  const TestStream stream;
  const Shape shapes[] = {{DType::bf16, 1, 70, 150, 2, 1, 64, 64},   {DType::bf16, 1, 1, 700, 4, 1, 128, 128},
                          {DType::f16, 1, 9, 300, 2, 1, 40, 24},     {DType::f32, 1, 20, 90, 1, 1, 32, 32},
                          {DType::bf16, 1, 17, 300, 2, 1, 256, 256}, {DType::bf16, 1, 3, 100, 1, 1, 576, 512}};
  for (const Shape& shape : shapes) {
    Case c = make_case(shape);
    c.options.causal = true;
    expect_right(c, stream);
  }
  for (std::uint64_t seed = 1'000'000, left = 4; left > 0; ++seed) {
    Case c = draw_case(seed);
    if (c.k.view().dtype != DType::i8 && c.k.view().dtype != DType::e5m2) continue;
    --left;
    if (c.q.view().dtype != DType::f64) expect_right(c, stream);
  }
}

TEST(GpuHeadDims, AnySizeHoldsTheErrorBound) {
  ONCHIP_SKIP_WITHOUT_GPU();
  constexpr std::pair<std::int64_t, std::int64_t> kDims[] = {
      {1, 1},    {3, 5},     {16, 300},  {72, 40},   {96, 96},   {128, 512}, {160, 160}, {192, 128},
      {200, 24}, {256, 256}, {288, 257}, {512, 512}, {576, 512}, {1024, 64}, {2050, 130}};
  constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::f32};
  constexpr int kDimCount = static_cast<int>(std::size(kDims));
  for_each_on_gpu(kDimCount * 4, [&](int index, const TestStream& stream) {
    const auto [d, dv] = kDims[index % kDimCount];
    Case c = make_case({kTypes[std::min(index / kDimCount, 2)], 1, 70, 130, 2, 1, d, dv});
    c.options.causal = index % 2 == 1;
    expect_right(c, stream);
  });
}

/// TF32 rounds the factors to 11 significant bits, which the bound for f32 does not allow for.
TEST(GpuTf32, StaysNearTheReference) {
  ONCHIP_SKIP_WITHOUT_GPU();
  use_gpu();
  const TestStream stream;
  for (const std::int64_t head_dim : {40, 64, 128, 256}) {
    Case exact = make_case({DType::f32, 1, 100, 200, 2, 2, head_dim, head_dim});
    DeviceCase device(exact);
    Attention args = device.args(stream);
    forward(args);
    stream.wait();
    device.read_results();
    const std::vector<double> want = exact.o.values();
    args.allow_tf32 = true;
    forward(args);
    stream.wait();
    device.read_results();
    const std::vector<double> got = exact.o.values();
    double worst = 0;
    for (std::size_t n = 0; n < want.size(); ++n) worst = std::max(worst, std::abs(want[n] - got[n]));
    EXPECT_LT(worst, 3e-3) << head_dim;
    EXPECT_GT(worst, 1e-6) << head_dim << ": TF32 was not used";
  }
}

TEST(GpuGrid, BeyondSixteenBitsHoldsTheErrorBound) {
  ONCHIP_SKIP_WITHOUT_GPU();
  use_gpu();
  const TestStream stream;
  Case c = make_case({DType::bf16, 40'000, 1, 3, 2, 1, 16, 16});
  expect_right(c, stream);
  Case heads = make_case({DType::bf16, 1, 2, 3, 70'000, 35'000, 16, 16});
  expect_right(heads, stream);
}

/// A tensor whose last row begins 2^32 elements after its first.
TEST(GpuLargeTensor, OffsetsBeyondThirtyOneBits) {
  ONCHIP_SKIP_WITHOUT_GPU();
  use_gpu();
  const TestStream stream;
  constexpr std::int64_t kRows = 17, kStride = std::int64_t{1} << 28;
  Case c = make_case({DType::bf16, 1, kRows, kRows, 1, 1, 64, 64});
  DeviceCase device(c);
  Attention near = device.args(stream);
  forward(near);
  stream.wait();
  device.read_results();
  const std::vector<double> want = c.o.values();

  const std::size_t bytes = ((kRows - 1) * kStride + 16384) * 2;
  Attention far = near;
  DeviceMemory spread(0, bytes);
  const auto base = reinterpret_cast<DevicePointer>(spread.data());
  check(test_driver()->cuMemsetD8_v2(base, 0xFF, bytes), "cuMemsetD8");
  const auto copy_rows = [&](const TensorBuffer& rows, std::int64_t column) {
    for (std::int64_t r = 0; r < kRows; ++r)
      check(test_driver()->cuMemcpyHtoD_v2(base + static_cast<DevicePointer>((r * kStride + column) * 2),
                                           static_cast<const std::byte*>(rows.view().data) + r * 128, 128),
            "cuMemcpyHtoD");
  };
  for (const auto& [tensor, buffer, column] :
       {std::tuple{&far.q, &c.q, 0}, {&far.k, &c.k, 4096}, {&far.v, &c.v, 8192}}) {
    copy_rows(*buffer, column);
    tensor->data = reinterpret_cast<void*>(base + static_cast<DevicePointer>(column) * 2);
    tensor->stride[1] = kStride;
  }
  far.o.data = reinterpret_cast<void*>(base + 12288 * 2);
  far.o.stride[1] = kStride;
  forward(far);
  stream.wait();
  std::vector<std::byte> row(128);
  for (std::int64_t r = 0; r < kRows; ++r) {
    check(test_driver()->cuMemcpyDtoH_v2(row.data(), base + static_cast<DevicePointer>((r * kStride + 12288) * 2), 128),
          "cuMemcpyDtoH");
    EXPECT_EQ(0, std::memcmp(row.data(), static_cast<const std::byte*>(c.o.view().data) + r * 128, 128)) << r;
  }
}

/// The results of `runs` calls have the same bits.
void expect_repeatable(Case c, int runs) {
  use_gpu();
  const TestStream stream;
  DeviceCase device(c);
  const Attention args = device.args(stream);
  std::vector<std::byte> first;
  for (int n = 0; n < runs; ++n) {
    forward(args);
    stream.wait();
    device.read_results();
    if (n == 0) first = c.o.bytes();
    ASSERT_EQ(first, c.o.bytes()) << n;
  }
}

TEST(GpuRepeats, AThousandRunsGiveTheSameBits) {
  ONCHIP_SKIP_WITHOUT_GPU();
  Case c = make_case({DType::bf16, 2, 300, 700, 4, 2, 64, 64});
  c.options.causal = true;
  expect_repeatable(c, 1000);
  expect_repeatable(make_case({DType::bf16, 2, 1, 9000, 8, 2, 128, 128}), 1000);
}

void expect_replays(Case c) {
  use_gpu();
  const TestDriver& driver = *test_driver();
  const TestStream stream;
  DeviceCase device(c);
  const Attention args = device.args(stream);
  forward(args);
  stream.wait();
  device.read_results();
  const std::vector<std::byte> want = c.o.bytes();

  Graph graph = nullptr;
  GraphExec exec = nullptr;
  check(driver.cuStreamBeginCapture_v2(stream.get(), 0), "cuStreamBeginCapture");
  forward(args);
  check(driver.cuStreamEndCapture(stream.get(), &graph), "cuStreamEndCapture");
  check(driver.cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiate");
  for (int n = 0; n < 3; ++n) {
    check(driver.cuMemsetD8_v2(reinterpret_cast<DevicePointer>(args.o.data), 0xFF, 64), "cuMemsetD8");
    check(driver.cuCtxSynchronize(), "cuCtxSynchronize");
    check(driver.cuGraphLaunch(exec, stream.get()), "cuGraphLaunch");
    stream.wait();
    device.read_results();
    EXPECT_EQ(want, c.o.bytes());
  }
  driver.cuGraphExecDestroy(exec);
  driver.cuGraphDestroy(graph);
}

/// With splits the call allocates its workspace in the graph, too.
TEST(GpuGraph, ACapturedCallReplays) {
  ONCHIP_SKIP_WITHOUT_GPU();
  expect_replays(make_case({DType::bf16, 1, 200, 300, 2, 2, 64, 64}));
  expect_replays(make_case({DType::bf16, 1, 1, 9000, 8, 2, 128, 128}));
}

TEST(GpuStreams, TwoAtOnceDoNotDisturbEachOther) {
  ONCHIP_SKIP_WITHOUT_GPU();
  use_gpu();
  const TestStream streams[2];
  Case cases[2] = {make_case({DType::bf16, 1, 500, 900, 4, 2, 64, 64}, 1),
                   make_case({DType::bf16, 1, 500, 900, 4, 2, 64, 64}, 2)};
  DeviceCase devices[2] = {DeviceCase(cases[0]), DeviceCase(cases[1])};
  std::vector<std::byte> want[2];
  for (int n = 0; n < 100; ++n) {
    for (int s = 0; s < 2; ++s) forward(devices[s].args(streams[s]));
    for (int s = 0; s < 2; ++s) {
      streams[s].wait();
      devices[s].read_results();
      if (n == 0) want[s] = cases[s].o.bytes();
      ASSERT_EQ(want[s], cases[s].o.bytes()) << n;
    }
  }
  for (int s = 0; s < 2; ++s) expect_right(cases[s], streams[s]);
}

}  // namespace
}  // namespace onchip::test
