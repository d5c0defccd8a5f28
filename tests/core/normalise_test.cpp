#include "core/normalise.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace onchip {
namespace {

constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();

TEST(Normalise, RefusesRanksThatCannotBe) {
  for (const int rank : {-1, 5, 1 << 30}) {
    Attention args;
    args.sink.rank = rank;
    const Status status = normalise(args);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_NE(status.message().find("sink: rank " + std::to_string(rank)), std::string::npos) << status.message();
  }
}

TEST(Normalise, AbsentTensorsAreEmpty) {
  Attention args;
  args.bias = {&args, DType::f16, 0, {7, 7, 7, 7}, {kFar, 1, 2, 3}};
  ASSERT_TRUE(normalise(args).ok());
  EXPECT_EQ(args.bias.data, nullptr);
  EXPECT_EQ(args.bias.stride, (std::array<std::int64_t, 4>{}));
}

TEST(Normalise, StridesThatMeanNothingBecomeHarmless) {
  Attention args;
  args.q = {nullptr, DType::f32, 4, {1, 5, 1, 8}, {kFar, 100, -kFar, 1}};
  args.k = {nullptr, DType::f32, 4, {3, 0, 2, 8}, {kFar, kFar, kFar, 1}};
  args.sink = {nullptr, DType::f32, 1, {5, 6, 7, 8}, {1, kFar, kFar, kFar}};
  ASSERT_TRUE(normalise(args).ok());
  EXPECT_EQ(args.sink.stride, (std::array<std::int64_t, 4>{1, 0, 0, 0}));
  EXPECT_EQ(args.q.stride, (std::array<std::int64_t, 4>{40, 100, 8, 1}));
  EXPECT_EQ(args.k.stride, (std::array<std::int64_t, 4>{0, 0, 0, 1}));
}

}  // namespace
}  // namespace onchip
