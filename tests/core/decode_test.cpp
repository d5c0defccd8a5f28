#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/decode_rig.hpp"
#include "onchip/onchip.hpp"

namespace onchip {
namespace {

using test::CacheLayout;
using test::CacheScale;
using test::DecodeOptions;
using test::DecodeRig;
using test::OwnedTensor;

struct CacheKind {
  DType type, cache_type;
  CacheScale scale;
};

constexpr CacheKind kCacheKinds[] = {
    {DType::f64, DType::f64, CacheScale::none},     {DType::f32, DType::f32, CacheScale::none},
    {DType::bf16, DType::bf16, CacheScale::none},   {DType::f16, DType::f16, CacheScale::none},
    {DType::e4m3, DType::e4m3, CacheScale::none},   {DType::f32, DType::i8, CacheScale::tensor},
    {DType::f32, DType::i8, CacheScale::head},      {DType::f16, DType::i8, CacheScale::batch_head},
    {DType::f32, DType::i8, CacheScale::token},     {DType::f64, DType::i8, CacheScale::token},
    {DType::bf16, DType::e4m3, CacheScale::token},  {DType::f32, DType::e4m3, CacheScale::head},
    {DType::f16, DType::e5m2, CacheScale::token},   {DType::f32, DType::e5m2, CacheScale::batch_head},
    {DType::e4m3, DType::e4m3, CacheScale::tensor},
};

/// Every way to lay out and to quantise the cache, several steps each.
class DecodeCache : public ::testing::TestWithParam<CacheLayout> {};

TEST_P(DecodeCache, AgreesWithPlainLoops) {
  for (Backend backend : {Backend::standard, Backend::automatic})
    for (const CacheKind& kind : kCacheKinds)
      for (bool packed_q : {false, true}) {
        DecodeOptions options;
        options.type = kind.type;
        options.cache_type = kind.cache_type;
        options.scale = kind.scale;
        options.layout = GetParam();
        options.packed_q = packed_q;
        options.rotary = 8;
        options.interleaved = packed_q;
        options.backend = backend;
        SCOPED_TRACE(text(options));
        DecodeRig rig(options, {5, 0, 9});
        for (const std::vector<std::int64_t>& step : {std::vector<std::int64_t>{3, 3, 3}, {1, 1, 1}, {4, 4, 4}}) {
          rig.draw(packed_q ? std::vector<std::int64_t>{step[0], 0, 2 * step[0] - 1} : step);
          decode(rig.problem());
          ASSERT_NO_FATAL_FAILURE(rig.check());
        }
      }
}

std::string layout_name(const ::testing::TestParamInfo<CacheLayout>& layout) {
  const char* const names[] = {"batched", "transposed", "packed", "paged"};
  return names[static_cast<int>(layout.param)];
}

INSTANTIATE_TEST_SUITE_P(Layouts, DecodeCache,
                         ::testing::Values(CacheLayout::batched, CacheLayout::transposed, CacheLayout::packed,
                                           CacheLayout::paged),
                         layout_name);

TEST(Decode, RotaryOfEveryWidthInBothStyles) {
  for (bool interleaved : {false, true})
    for (std::int64_t rotary : {0, 2, 6, 12})
      for (DType type : {DType::f64, DType::f32, DType::bf16})
        for (bool causal : {false, true}) {
          DecodeOptions options;
          options.type = options.cache_type = type;
          options.angle_type = rotary == 6 ? type : DType::f32;
          options.rotary = rotary;
          options.interleaved = interleaved;
          options.causal = causal;
          SCOPED_TRACE(text(options));
          DecodeRig rig(options, {7, 1, 0});
          rig.draw({4, 4, 4});
          decode(rig.problem());
          ASSERT_NO_FATAL_FAILURE(rig.check());
        }
}

TEST(Decode, StepsInARowEqualOnePrefill) {
  for (CacheLayout layout : {CacheLayout::batched, CacheLayout::paged}) {
    DecodeOptions options;
    options.layout = layout;
    options.rotary = 12;
    DecodeRig whole(options, {2, 0, 5}), stepwise(options, {2, 0, 5});
    whole.draw({9, 9, 9});
    decode(whole.problem());
    for (const auto& [begin, end] : {std::pair{0, 4}, {4, 5}, {5, 6}, {6, 9}}) {
      stepwise.take(whole, begin, end);
      decode(stepwise.problem());
      for (std::int64_t b = 0; b < DecodeRig::kBatch; ++b)
        for (std::int64_t i = begin; i < end; ++i)
          for (std::int64_t head = 0; head < DecodeRig::kHeadsQ; ++head)
            for (std::int64_t d = 0; d < options.head_dim_v; ++d)
              ASSERT_NEAR(stepwise.output(b, i - begin, head, d), whole.output(b, i, head, d), 1e-6);
      stepwise.check();
    }
    EXPECT_EQ(whole.k().memory, stepwise.k().memory);
    EXPECT_EQ(whole.v().memory, stepwise.v().memory);
  }
}

TEST(Decode, LeavesTheLengthsAndTheRestOfTheCacheAlone) {
  DecodeOptions options;
  options.rotary = 4;
  DecodeRig rig(options, {3, 0, 23});
  rig.draw({1, 1, 1});
  std::vector<std::byte> expected = rig.k().memory;
  decode(rig.problem());
  EXPECT_EQ(rig.lengths(), (std::vector<std::int32_t>{3, 0, 23}));
  const std::size_t row_bytes = DecodeRig::kHeadsKv * 12 * sizeof(float);
  for (std::int64_t b = 0; b < 3; ++b) {
    const std::size_t at = (b * DecodeRig::kCapacity + rig.lengths()[b]) * row_bytes;
    std::copy_n(rig.k().memory.begin() + at, row_bytes, expected.begin() + at);
  }
  EXPECT_EQ(rig.k().memory, expected);
}

TEST(Decode, WithoutNewKeysItIsAttention) {
  DecodeRig rig({}, {4, 4, 4});
  rig.draw({2, 2, 2});
  Decode d = rig.problem();
  d.k_new = d.v_new = Tensor{};
  decode(d);
  const double from_decode = rig.output(1, 1, 2, 3);
  forward(d.attention);
  EXPECT_EQ(from_decode, rig.output(1, 1, 2, 3));
}

/// Whatever else the problem has, decode() is attention over the lengths with the new keys.
TEST(Decode, IsAppendThenAttention) {
  for (CacheLayout layout : {CacheLayout::batched, CacheLayout::paged}) {
    DecodeOptions options;
    options.layout = layout;
    DecodeRig rig(options, {4, 0, 11});
    rig.draw({3, 3, 3});
    OwnedTensor bias(DType::f32, {1, 4, 3, DecodeRig::kCapacity}),
        mask(DType::boolean, {3, 1, 3, DecodeRig::kCapacity});
    OwnedTensor slopes(DType::f32, {4}), sink(DType::f32, {4});
    for (std::int64_t i = 0; i < bias.count; ++i) bias.set(i, static_cast<double>(i % 13) / 5);
    for (std::int64_t i = 0; i < mask.count; ++i) mask.memory[i] = std::byte{i % 7 != 3};
    for (std::int64_t h = 0; h < 4; ++h) slopes.set(h, 0.1 * static_cast<double>(h)), sink.set(h, 0.5);
    Decode d = rig.problem();
    d.attention.bias = bias.view, d.attention.mask = mask.view;
    d.attention.alibi_slopes = slopes.view, d.attention.sink = sink.view;
    d.attention.softcap = 3, d.attention.window_left = 6;
    decode(d);
    OwnedTensor o(DType::f32, {3, 3, 4, options.head_dim_v}), lengths(DType::i32, {3});
    for (std::int64_t b = 0; b < 3; ++b) lengths.int32()[b] = rig.lengths()[b] + 3;
    Attention attention = d.attention;
    attention.o = o.view, attention.seqused_k = lengths.view;
    forward(attention);
    for (std::int64_t i = 0; i < o.count; ++i)
      ASSERT_EQ(o.get(i), static_cast<const float*>(d.attention.o.data)[i]) << "element " << i;
  }
}

TEST(Decode, WorkspaceOfThePlanIsEnough) {
  DecodeOptions options;
  options.rotary = 12;
  DecodeRig rig(options, {3, 2, 1});
  rig.draw({2, 2, 2});
  const std::size_t bytes = plan(rig.problem()).workspace_bytes;
  ASSERT_GE(bytes, 3u * 2 * 4 * 12 * sizeof(float));
  std::vector<std::byte> memory(bytes + 64, std::byte{0xFF});
  auto* aligned = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
  const std::vector<std::byte> cache = rig.k().memory;
  try {
    decode(rig.problem(), {aligned, bytes - 1});
    ADD_FAILURE() << "a small workspace was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), StatusCode::workspace_too_small);
  }
  EXPECT_EQ(rig.k().memory, cache);
  EXPECT_EQ(decode(rig.problem(), {aligned, bytes}).workspace_bytes, bytes);
  rig.check();
}

TEST(Decode, PredictsTheAppendAndExplainsItself) {
  DecodeOptions options;
  DecodeRig rig(options, {3, 2, 1});
  rig.draw({2, 2, 2});
  const Decode appending = rig.problem();
  Decode without = appending;
  without.k_new = without.v_new = {};
  const Prediction with = plan(appending).predicted, alone = plan(without).predicted;
  const auto bytes = [](const Tensor& t) {
    return static_cast<double>(t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3]) *
           static_cast<double>(size_of(t.dtype));
  };
  EXPECT_GE(with.main_memory_read_bytes,
            alone.main_memory_read_bytes + bytes(appending.k_new) + bytes(appending.v_new));
  EXPECT_GT(with.main_memory_write_bytes, alone.main_memory_write_bytes);
  EXPECT_NE(explain(appending).find("forward pass: " + plan(appending).implementation), std::string::npos);
  EXPECT_NE(explain_json(appending).find("\"implementation\""), std::string::npos);
}

TEST(Decode, PlansWithoutData) {
  DecodeOptions options;
  options.rotary = 12;
  for (bool packed_q : {false, true}) {
    options.packed_q = packed_q;
    DecodeRig rig(options, {3, 2, 1});
    rig.draw({2, 2, 2});
    Decode d = rig.problem();
    for (Tensor* tensor : {&d.attention.q, &d.attention.k, &d.attention.v, &d.attention.o, &d.attention.lse, &d.k_new,
                           &d.v_new, &d.rotary.cos, &d.rotary.sin, &d.attention.seqused_k, &d.attention.cu_seqlens_q})
      tensor->data = nullptr;
    EXPECT_GE(plan(d).workspace_bytes, plan(rig.problem()).workspace_bytes);
  }
}

TEST(Decode, ScalesOfOddRows) {
  DecodeOptions options;
  options.cache_type = DType::i8;
  options.scale = CacheScale::token;
  DecodeRig rig(options, {0, 0, 0});
  rig.draw({3, 3, 3});
  const auto fill = [&](std::int64_t i, double value) {  // token i of sequence 0, both heads
    for (std::int64_t e = 0; e < 24; ++e) rig.k_new().set(i * 24 + e, value);
  };
  fill(0, 0.0);
  fill(1, 1.0);
  fill(2, 1e-44);  // the scale would be 0 in f32
  rig.k_new().set(24, std::numeric_limits<double>::quiet_NaN());
  decode(rig.problem());
  EXPECT_EQ(rig.k_scale().get(0), 1.0);
  EXPECT_TRUE(std::isnan(rig.k_scale().get(2)));
  EXPECT_FLOAT_EQ(static_cast<float>(rig.k_scale().get(3)), 1.0f / 127);
  EXPECT_EQ(rig.k_scale().get(4), 1.0);
  EXPECT_EQ(rig.k().get(0), 0.0);
  EXPECT_EQ(rig.k().get(4 * 12), 0.0);
  for (std::int64_t d = 0; d < options.head_dim_v; ++d) {
    EXPECT_FALSE(std::isnan(rig.output(0, 0, 0, d)));  // sees key 0 only
    EXPECT_TRUE(std::isnan(rig.output(0, 1, 0, d)));
    EXPECT_FALSE(std::isnan(rig.output(0, 1, 2, d)));  // KV head 1 has no NaN
  }
}

}  // namespace
}  // namespace onchip
