#include "cpu/finish_rows.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/query_block.hpp"

namespace onchip::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(FinishRow, DividesByTheSum) {
  const FinishedRow row = finish_row(3 * kLog2E, 4, nullptr);
  EXPECT_DOUBLE_EQ(row.output_factor, 0.25);
  EXPECT_NEAR(row.lse, 3 + std::log(4.0), 1e-14);
}

TEST(FinishRow, WithoutKeysIsEmpty) {
  const FinishedRow row = finish_row(-kInfinity, 0, nullptr);
  EXPECT_EQ(row.output_factor, 0);
  EXPECT_EQ(row.lse, -kInfinity);
}

TEST(FinishRow, SinkJoinsTheDenominator) {
  for (float sink : {-2.0f, 0.5f, 9.0f}) {
    const FinishedRow row = finish_row(3 * kLog2E, 4, &sink);
    const double sum = 4 * std::exp(3.0) + std::exp(double(sink));
    EXPECT_NEAR(row.lse, std::log(sum), 1e-13);
    EXPECT_NEAR(row.output_factor, std::exp(3.0) / sum, 1e-13);
  }
}

TEST(FinishRow, SinkAloneIsTheLse) {
  const float sink = 7.5f;
  const FinishedRow row = finish_row(-kInfinity, 0, &sink);
  EXPECT_EQ(row.output_factor, 0);
  EXPECT_NEAR(row.lse, 7.5, 1e-14);
}

TEST(FinishRow, FarLogitsNeitherOverflowNorVanish) {
  const float sink = -60000.0f;
  EXPECT_NEAR(finish_row(-60000 * kLog2E, 1, &sink).output_factor, 0.5, 1e-9);
  EXPECT_NEAR(finish_row(60000 * kLog2E, 2, &sink).output_factor, 0.5, 1e-15);
  EXPECT_NEAR(finish_row(60000 * kLog2E, 2, &sink).lse, 60000 + std::log(2.0), 1e-10);
}

TEST(FinishRow, KeepsNaNAndInfinity) {
  EXPECT_TRUE(std::isnan(finish_row(1, NAN, nullptr).lse));
  EXPECT_TRUE(std::isnan(finish_row(1, NAN, nullptr).output_factor));
  EXPECT_EQ(finish_row(kInfinity, kInfinity, nullptr).lse, kInfinity);
}

}  // namespace
}  // namespace onchip::cpu
