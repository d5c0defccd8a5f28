// The Hopper forward kernel against the float64 reference: its features over lengths around its tiles, and scores that
// test the deferred maximum. Skipped by name where there is no Hopper GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "cuda/device_case.hpp"
#include "cuda/host/fwd_sm90_plan.hpp"
#include "support/rng.hpp"

namespace onchip::test {
namespace {

constexpr std::int64_t kHeads = 4, kKvHeads = 2;

struct Lengths {
  std::int64_t q, k;
};
constexpr Lengths kLengths[] = {{65, 1}, {129, 127}, {191, 193}, {300, 353}, {515, 300}, {128, 1000}};

struct Feature {
  const char* name;
  DType type = DType::bf16;
  std::int64_t head_dim = 128, head_dim_v = 128;
  void (*add)(Case& c, Rng& rng) = [](Case&, Rng&) {};
  bool packed = false;
};

TensorBuffer filled(DType type, const std::vector<std::int64_t>& shape, Rng& rng) {
  TensorBuffer buffer(type, shape);
  buffer.fill([&] { return rng.normal(); });
  return buffer;
}

TensorBuffer integers(const std::vector<double>& values) {
  TensorBuffer buffer(DType::i32, {static_cast<std::int64_t>(values.size())});
  buffer.assign(values);
  return buffer;
}

/// Two sequences; packed, a third between them has no queries, and the last is shorter.
Case make_case(const Feature& f, const Lengths& n, std::uint64_t seed) {
  Case c;
  Rng rng(seed);
  if (f.packed) {
    const auto q = static_cast<double>(n.q), k = static_cast<double>(n.k), rest = std::floor(q / 2);
    c.cu_seqlens_q = integers({0, q, q, q + rest});
    c.cu_seqlens_k = integers({0, k, k + 7, 2 * k + 7});
    c.q = filled(f.type, {n.q + n.q / 2, kHeads, f.head_dim}, rng);
    c.k = filled(f.type, {2 * n.k + 7, kKvHeads, f.head_dim}, rng);
    c.v = filled(f.type, {2 * n.k + 7, kKvHeads, f.head_dim_v}, rng);
  } else {
    c.q = filled(f.type, {2, n.q, kHeads, f.head_dim}, rng);
    c.k = filled(f.type, {2, n.k, kKvHeads, f.head_dim}, rng);
    c.v = filled(f.type, {2, n.k, kKvHeads, f.head_dim_v}, rng);
  }
  c.options.at_least = "cuda_fwd_sm90";
  f.add(c, rng);
  add_results(c, false);
  return c;
}

const Feature kFeatures[] = {
    {.name = "dense"},
    {.name = "causal", .add = [](Case& c, Rng&) { c.options.causal = true; }},
    {.name = "causal_top_left_f16",
     .type = DType::f16,
     .add = [](Case& c, Rng&) { c.options.causal = true, c.options.alignment = Alignment::top_left; }},
    {.name = "causal_d64", .head_dim = 64, .head_dim_v = 64, .add = [](Case& c, Rng&) { c.options.causal = true; }},
    {.name = "window_d64",
     .head_dim = 64,
     .head_dim_v = 64,
     .add = [](Case& c, Rng&) { c.options.window_left = 100, c.options.window_right = 30; }},
    {.name = "causal_d256", .head_dim = 256, .head_dim_v = 256, .add = [](Case& c, Rng&) { c.options.causal = true; }},
    {.name = "window_d192_dv128", .head_dim = 192, .add = [](Case& c, Rng&) { c.options.window_left = 200; }},
    {.name = "d72_dv40", .head_dim = 72, .head_dim_v = 40},
    {.name = "sink_causal_d96",
     .head_dim = 96,
     .head_dim_v = 96,
     .add =
         [](Case& c, Rng& rng) {
           c.options.causal = true;
           c.sink = filled(DType::f32, {kHeads}, rng);
         }},
    {.name = "softcap_alibi_causal",
     .add =
         [](Case& c, Rng& rng) {
           c.options.causal = true;
           c.options.softcap = 3;
           c.alibi_slopes = filled(DType::f32, {kHeads}, rng);
         }},
    {.name = "negative_scale", .add = [](Case& c, Rng&) { c.options.softmax_scale = -0.2; }},
    {.name = "bias_f16",
     .type = DType::f16,
     .add =
         [](Case& c, Rng& rng) {
           c.bias = filled(DType::f16, {1, kHeads, c.q.view().shape[1], c.k.view().shape[1]}, rng);
         }},
    {.name = "mask_causal",
     .add =
         [](Case& c, Rng& rng) {
           c.options.causal = true;
           c.mask = TensorBuffer(DType::boolean, {2, 1, c.q.view().shape[1], c.k.view().shape[1]});
           c.mask.fill([&] { return rng.chance(0.3) ? 1.0 : 0.0; });
         }},
    {.name = "packed_causal", .add = [](Case& c, Rng&) { c.options.causal = true; }, .packed = true},
    {.name = "packed_d64", .head_dim = 64, .head_dim_v = 64, .packed = true},
    {.name = "seqused",
     .add =
         [](Case& c, Rng& rng) {
           const auto k = static_cast<double>(c.k.view().shape[1]);
           c.seqused_k = integers({k, std::floor(k * rng.uniform())});
           c.options.causal = true;
         }},
};

class FwdSm90 : public ::testing::TestWithParam<Feature> {};

TEST_P(FwdSm90, HoldsTheErrorBound) {
  ONCHIP_SKIP_WITHOUT_HOPPER();
  use_gpu();
  const TestStream stream;
  std::uint64_t seed = 1;
  for (const Lengths& lengths : kLengths) {
    Case c = make_case(GetParam(), lengths, seed++);
    for (const std::string& failure : check_on_gpu(c, stream)) ADD_FAILURE() << failure << "\n  " << describe(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Features, FwdSm90, ::testing::ValuesIn(kFeatures),
                         [](const auto& feature) { return std::string(feature.param.name); });

// What follows changes some of 900 keys (7 tiles of 128, from the last to the first) of ordinary inputs.
struct Scores {
  const char* name;
  std::function<double(std::int64_t key)> k_factor;
  std::function<double(std::int64_t key, double value)> v = [](std::int64_t, double value) { return value; };
  bool causal = false;
};

constexpr std::int64_t kKeys = 900;

/// Grows by 2^step from tile to tile, in the order in which they are walked.
std::function<double(std::int64_t)> growing(double step, double most) {
  return
      [=](std::int64_t key) { return std::exp2(std::min(step * static_cast<double>((kKeys - 1 - key) / 128), most)); };
}

const std::function<double(std::int64_t)> kAsIs = [](std::int64_t) { return 1.0; };
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

const Scores kScores[] = {
    {"growing_by_2", growing(1, 10)},
    {"growing_by_4_causal", growing(2, 12), [](std::int64_t, double value) { return value; }, true},
    {"growing_by_1024", growing(10, 13)},
    {"largest_in_the_last_tile", [](std::int64_t key) { return key == 3 ? 2000.0 : 1.0; }},
    {"largest_among_the_first", [](std::int64_t key) { return key == 890 ? 2000.0 : 1.0; }},
    {"all_zero", [](std::int64_t) { return 0.0; }},
    {"nan_key", [](std::int64_t key) { return key == 500 ? kNaN : 1.0; },
     [](std::int64_t, double value) { return value; }, true},
    {"nan_value", kAsIs, [](std::int64_t key, double value) { return key == 500 ? kNaN : value; }, true},
    {"infinite_value", kAsIs, [](std::int64_t key, double value) { return key == 130 ? kInf : value; }, true},
    {"huge_values", kAsIs, [](std::int64_t, double value) { return value * 1e4; }},
};

class FwdSm90Scores : public ::testing::TestWithParam<std::tuple<Scores, DType, int>> {};

TEST_P(FwdSm90Scores, HoldTheErrorBound) {
  ONCHIP_SKIP_WITHOUT_HOPPER();
  use_gpu();
  const TestStream stream;
  const auto& [scores, type, head_dim] = GetParam();
  Case c;
  Rng rng(7);
  c.q = filled(type, {1, 300, 2, head_dim}, rng);
  c.k = filled(type, {1, kKeys, 2, head_dim}, rng);
  c.v = filled(type, {1, kKeys, 2, head_dim}, rng);
  std::vector<double> k = c.k.values(), v = c.v.values();
  for (std::size_t i = 0; i < k.size(); ++i) {
    const auto key = static_cast<std::int64_t>(i) / (2 * head_dim);
    k[i] = scores.k_factor(key) * k[i];
    v[i] = scores.v(key, v[i]);
  }
  c.k.assign(k);
  c.v.assign(v);
  c.options.causal = scores.causal;
  c.options.at_least = "cuda_fwd_sm90";
  add_results(c, false);
  for (const std::string& failure : check_on_gpu(c, stream)) ADD_FAILURE() << failure << "\n  " << describe(c);
}

INSTANTIATE_TEST_SUITE_P(Adversarial, FwdSm90Scores,
                         ::testing::Combine(::testing::ValuesIn(kScores), ::testing::Values(DType::bf16, DType::f16),
                                            ::testing::Values(64, 128, 256)),
                         [](const auto& drawn) {
                           return std::string(std::get<0>(drawn.param).name) +
                                  (std::get<1>(drawn.param) == DType::f16 ? "_f16_d" : "_bf16_d") +
                                  std::to_string(std::get<2>(drawn.param));
                         });

/// More tiles than 132 CTAs may take: 512 each, taken one by one.
TEST(FwdSm90Tiles, BeyondWhatOneCtaTakesAreAllComputed) {
  ONCHIP_SKIP_WITHOUT_HOPPER();
  use_gpu();
  const TestStream stream;
  Case c;
  Rng rng(5);
  c.q = filled(DType::bf16, {40'000, 1, 2, 16}, rng);
  c.k = filled(DType::bf16, {40'000, 3, 1, 16}, rng);
  c.v = filled(DType::bf16, {40'000, 3, 1, 16}, rng);
  c.options.causal = true;
  c.options.at_least = "cuda_fwd_sm90";
  add_results(c, false);
  for (const std::string& failure : check_on_gpu(c, stream)) ADD_FAILURE() << failure;
}

/// Logits of −60,000 are ordinary.
TEST(FwdSm90Rows, OfLogitsFarBelowZeroAreOrdinary) {
  ONCHIP_SKIP_WITHOUT_HOPPER();
  use_gpu();
  const TestStream stream;
  Case c;
  Rng rng(11);
  c.q = TensorBuffer(DType::bf16, {1, 200, 2, 128});
  c.k = TensorBuffer(DType::bf16, {1, 500, 2, 128});
  c.v = filled(DType::bf16, {1, 500, 2, 128}, rng);
  c.q.fill([] { return 240.0; });
  c.k.fill([&] { return -250.0 - 4 * rng.uniform(); });
  c.options.softmax_scale = 60000.0 / (240.0 * 252 * 128);
  c.options.at_least = "cuda_fwd_sm90";
  add_results(c, false);
  for (const std::string& failure : check_on_gpu(c, stream)) ADD_FAILURE() << failure;
}

}  // namespace
}  // namespace onchip::test
