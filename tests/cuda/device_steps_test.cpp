// Steps of generation and merging of partial results in device memory.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/decode_rig.hpp"
#include "cuda/device_image.hpp"
#include "cuda/gpu.hpp"

namespace onchip::test {
namespace {

/// One step of the rig on the GPU; its memory then holds what the step wrote.
void decode_on_gpu(DecodeRig& rig) {
  DeviceImage image;
  for (OwnedTensor* tensor : rig.tensors()) image.add(tensor->memory.data(), tensor->memory.size());
  const TestStream stream;
  Decode step = rig.problem();
  image.move(step.attention);
  image.move({&step.k_new, &step.v_new, &step.rotary.cos, &step.rotary.sin});
  step.attention.device = 0;
  step.attention.stream = stream.get();
  decode(step);
  stream.wait();
  image.read_all();
}

struct CacheKind {
  DType type, cache_type;
  CacheScale scale;
};

constexpr CacheKind kCacheKinds[] = {
    {DType::f32, DType::f32, CacheScale::none},      {DType::bf16, DType::bf16, CacheScale::none},
    {DType::f16, DType::f16, CacheScale::none},      {DType::e4m3, DType::e4m3, CacheScale::none},
    {DType::f32, DType::i8, CacheScale::tensor},     {DType::f32, DType::i8, CacheScale::head},
    {DType::f16, DType::i8, CacheScale::batch_head}, {DType::bf16, DType::i8, CacheScale::token},
    {DType::bf16, DType::e4m3, CacheScale::token},   {DType::f32, DType::e4m3, CacheScale::head},
    {DType::f16, DType::e5m2, CacheScale::token},    {DType::f32, DType::e5m2, CacheScale::batch_head}};

class GpuDecode : public ::testing::TestWithParam<std::tuple<CacheLayout, CacheKind>> {};

TEST_P(GpuDecode, AgreesWithPlainLoops) {
  ONCHIP_SKIP_WITHOUT_GPU();
  use_gpu();
  const auto& [layout, kind] = GetParam();
  for (const bool packed_q : {false, true}) {
    DecodeOptions options;
    options.type = kind.type;
    options.cache_type = kind.cache_type;
    options.scale = kind.scale;
    options.layout = layout;
    options.packed_q = packed_q;
    options.rotary = 8;
    options.interleaved = packed_q;
    options.angle_type = packed_q && kind.type != DType::e4m3 ? kind.type : DType::f32;
    SCOPED_TRACE(text(options));
    DecodeRig rig(options, {5, 0, 9});
    for (const std::vector<std::int64_t>& step : {std::vector<std::int64_t>{3, 3, 3}, {1, 1, 1}, {4, 4, 4}}) {
      rig.draw(packed_q ? std::vector<std::int64_t>{step[0], 0, 2 * step[0] - 1} : step);
      decode_on_gpu(rig);
      ASSERT_NO_FATAL_FAILURE(rig.check());
    }
  }
}

std::string cache_name(const ::testing::TestParamInfo<std::tuple<CacheLayout, CacheKind>>& tested) {
  const char* const layouts[] = {"batched", "transposed", "packed", "paged"};
  const char* const scales[] = {"none", "tensor", "head", "batch_head", "token"};
  const auto& [layout, kind] = tested.param;
  return std::string(layouts[static_cast<int>(layout)]) + "_" + name(kind.type) + "_" + name(kind.cache_type) + "_" +
         scales[static_cast<int>(kind.scale)];
}

INSTANTIATE_TEST_SUITE_P(Caches, GpuDecode,
                         ::testing::Combine(::testing::Values(CacheLayout::batched, CacheLayout::transposed,
                                                              CacheLayout::packed, CacheLayout::paged),
                                            ::testing::ValuesIn(kCacheKinds)),
                         cache_name);

/// Parts of [B, S, H, D] and their merge in double.
struct Parts {
  static constexpr std::int64_t kBatch = 2, kPositions = 5, kHeads = 3, kRows = kBatch * kPositions * kHeads;

  Parts(int count, std::int64_t d, DType type) : head_dim(d) {
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    for (int part = 0; part < count; ++part) {
      o.emplace_back(type, std::initializer_list<std::int64_t>{kBatch, kPositions, kHeads, d});
      lse.emplace_back(DType::f32, std::initializer_list<std::int64_t>{kBatch, kHeads, kPositions});
      for (std::int64_t i = 0; i < kRows * d; ++i) o.back().set(i, normal(random));
      for (std::int64_t i = 0; i < kRows; ++i) lse.back().set(i, 3 * normal(random));
    }
  }
  static std::int64_t lse_index(std::int64_t row) {
    const std::int64_t h = row % kHeads, s = row / kHeads % kPositions, b = row / kHeads / kPositions;
    return (b * kHeads + h) * kPositions + s;
  }

  std::int64_t head_dim;
  std::vector<OwnedTensor> o, lse;
};

/// Into memory of its own, or into the last part.
void expect_merged(Parts parts, double tolerance, bool in_place) {
  const Parts given = parts;
  OwnedTensor o = parts.o.back(), lse = parts.lse.back();
  DeviceImage image;
  const TestStream stream;
  std::vector<Tensor> o_views, lse_views;
  for (std::size_t i = 0; i < parts.o.size(); ++i) {
    image.add(parts.o[i].memory.data(), parts.o[i].memory.size());
    image.add(parts.lse[i].memory.data(), parts.lse[i].memory.size());
    o_views.push_back(image.moved(parts.o[i].view)), lse_views.push_back(image.moved(parts.lse[i].view));
  }
  image.add(o.memory.data(), o.memory.size());
  image.add(lse.memory.data(), lse.memory.size());
  merge_on_device(o_views, lse_views, in_place ? o_views.back() : image.moved(o.view),
                  in_place ? lse_views.back() : image.moved(lse.view), 0, stream.get());
  stream.wait();
  image.read_all();
  const OwnedTensor& got_o = in_place ? parts.o.back() : o;
  const OwnedTensor& got_lse = in_place ? parts.lse.back() : lse;
  for (std::int64_t row = 0; row < Parts::kRows; ++row) {
    double largest = -INFINITY, sum = 0;
    const std::int64_t at = Parts::lse_index(row);
    for (const OwnedTensor& part : given.lse) largest = std::max(largest, part.get(at));
    for (const OwnedTensor& part : given.lse) sum += largest == -INFINITY ? 0 : std::exp(part.get(at) - largest);
    const double want_lse = sum == 0 ? -INFINITY : largest + std::log(sum);
    if (sum == 0) {
      ASSERT_EQ(got_lse.get(at), want_lse);
    } else {
      ASSERT_NEAR(got_lse.get(at), want_lse, 1e-6 * (1 + std::abs(want_lse)));
    }
    for (std::int64_t d = 0; d < given.head_dim; ++d) {
      double want = 0;
      for (std::size_t i = 0; i < given.o.size(); ++i)
        if (given.lse[i].get(at) != -INFINITY)
          want += given.o[i].get(row * given.head_dim + d) * std::exp(given.lse[i].get(at) - want_lse);
      ASSERT_NEAR(got_o.get(row * given.head_dim + d), want, tolerance * (1 + std::abs(want))) << "row " << row;
    }
  }
}

TEST(GpuMerge, AgreesWithTheFormula) {
  ONCHIP_SKIP_WITHOUT_GPU();
  use_gpu();
  const std::pair<DType, double> types[] = {{DType::f32, 2e-6}, {DType::bf16, 0x1p-8}, {DType::f16, 0x1p-11}};
  for (const auto& [type, tolerance] : types)
    for (const int count : {1, 2, 5, 32})
      for (const std::int64_t d : {1, 7, 64, 300})
        for (const bool in_place : {false, true}) {
          SCOPED_TRACE(std::string(name(type)) + ", " + std::to_string(count) + " parts, D " + std::to_string(d));
          ASSERT_NO_FATAL_FAILURE(expect_merged(Parts(count, d, type), tolerance, in_place));
        }
}

/// A part without keys may hold anything; a row without keys in any part is 0 with lse −∞.
TEST(GpuMerge, LooksAtNoValuesOfEmptyParts) {
  ONCHIP_SKIP_WITHOUT_GPU();
  use_gpu();
  Parts parts(3, 64, DType::f32);
  for (std::int64_t row = 0; row < Parts::kRows; ++row)
    for (int part = 0; part < 3; ++part) {
      if (row % 4 != part && row % 4 != 3) continue;
      parts.lse[part].set(Parts::lse_index(row), -INFINITY);
      for (std::int64_t d = 0; d < 64; ++d) parts.o[part].set(row * 64 + d, NAN);
    }
  expect_merged(parts, 2e-6, false);
}

TEST(GpuMerge, NamesWhatItRefuses) {
  ONCHIP_SKIP_WITHOUT_GPU();
  const auto error_of = [](const Parts& parts) -> std::string {
    std::vector<Tensor> o, lse;
    for (const OwnedTensor& part : parts.o) o.push_back(part.view);
    for (const OwnedTensor& part : parts.lse) lse.push_back(part.view);
    try {
      merge_on_device(o, lse, o[0], lse[0], 0);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of(Parts(33, 8, DType::f32)).find("o_parts: 33 parts, expected at most 32"), std::string::npos);
  EXPECT_NE(error_of(Parts(2, 8, DType::f64)).find("expected host memory for f64"), std::string::npos);
}

}  // namespace
}  // namespace onchip::test
