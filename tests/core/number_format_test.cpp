#include "core/number_format.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace onchip {
namespace {

template <typename Element>
struct Traits;
template <>
struct Traits<BFloat16> {
  static constexpr FloatLayout kLayout = kBFloat16Layout;
  using Code = std::uint16_t;
};
template <>
struct Traits<Float16> {
  static constexpr FloatLayout kLayout = kFloat16Layout;
  using Code = std::uint16_t;
};
template <>
struct Traits<Float8E4M3> {
  static constexpr FloatLayout kLayout = kFloat8E4M3Layout;
  using Code = std::uint8_t;
};
template <>
struct Traits<Float8E5M2> {
  static constexpr FloatLayout kLayout = kFloat8E5M2Layout;
  using Code = std::uint8_t;
};

template <typename Element>
class NumberFormat : public ::testing::Test {};
using SmallFloats = ::testing::Types<BFloat16, Float16, Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(NumberFormat, SmallFloats);

template <typename Element>
double value_of(std::uint32_t code) {
  return to_double(Element{static_cast<typename Traits<Element>::Code>(code)});
}

TYPED_TEST(NumberFormat, EveryFiniteValueSurvivesARoundTrip) {
  const FloatLayout layout = Traits<TypeParam>::kLayout;
  for (std::uint32_t sign = 0; sign < 2; ++sign) {
    for (std::uint32_t code = 0; code <= layout.max_finite; ++code) {
      const std::uint32_t signed_code = code | (sign << layout.sign_shift());
      ASSERT_EQ(from_double<TypeParam>(value_of<TypeParam>(signed_code)).bits, signed_code);
    }
  }
}

TYPED_TEST(NumberFormat, RoundsToNearestEven) {
  const FloatLayout layout = Traits<TypeParam>::kLayout;
  for (std::uint32_t code = 0; code < layout.max_finite; ++code) {
    const double below = value_of<TypeParam>(code), above = value_of<TypeParam>(code + 1);
    ASSERT_LT(below, above);
    const double middle = 0.5 * (below + above);
    const std::uint32_t even = code + (code & 1);
    const std::uint32_t sign = 1u << layout.sign_shift();
    ASSERT_EQ(from_double<TypeParam>(middle).bits, even);
    ASSERT_EQ(from_double<TypeParam>(-middle).bits, even | sign);
    ASSERT_EQ(from_double<TypeParam>(std::nextafter(middle, 0.0)).bits, code);
    ASSERT_EQ(from_double<TypeParam>(std::nextafter(middle, above)).bits, code + 1);
  }
}

TYPED_TEST(NumberFormat, KeepsNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(to_float(from_double<TypeParam>(nan))));
  EXPECT_TRUE(std::isnan(to_float(from_double<TypeParam>(-nan))));
}

TEST(NumberFormatOverflow, WideTypesReachInfinityNarrowOnesSaturate) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(to_float(from_double<BFloat16>(1e39)), infinity);
  EXPECT_EQ(to_float(from_double<BFloat16>(-infinity)), -infinity);
  EXPECT_EQ(to_float(from_double<Float16>(65519.99)), 65504.0f);
  EXPECT_EQ(to_float(from_double<Float16>(65520.0)), infinity);
  EXPECT_EQ(to_float(from_double<Float8E4M3>(infinity)), 448.0f);
  EXPECT_EQ(to_float(from_double<Float8E4M3>(-1e9)), -448.0f);
  EXPECT_EQ(to_float(from_double<Float8E5M2>(-infinity)), -57344.0f);
}

TEST(NumberFormatSpecial, KnownEncodings) {
  EXPECT_EQ(from_double<Float16>(1.0).bits, 0x3C00);
  EXPECT_EQ(from_double<Float16>(0x1p-24).bits, 0x0001);
  EXPECT_EQ(from_double<BFloat16>(1.0).bits, 0x3F80);
  EXPECT_EQ(from_double<Float8E4M3>(1.0).bits, 0x38);
  EXPECT_EQ(from_double<Float8E5M2>(1.0).bits, 0x3C);
  EXPECT_EQ(to_float(Float8E5M2{0x7C}), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(to_float(Float8E4M3{0xFF})));
  EXPECT_TRUE(std::isnan(to_float(Float8E5M2{0x7D})));
  EXPECT_TRUE(std::isnan(to_float(BFloat16{0x7F81})));
  static_assert(to_float(from_double<Float16>(-0.0)) == 0.0f);
}

TEST(NumberFormatInt8, RoundsToNearestEvenAndSaturates) {
  EXPECT_EQ(from_double<std::int8_t>(2.5), 2);
  EXPECT_EQ(from_double<std::int8_t>(3.5), 4);
  EXPECT_EQ(from_double<std::int8_t>(-2.5), -2);
  EXPECT_EQ(from_double<std::int8_t>(126.5), 126);
  EXPECT_EQ(from_double<std::int8_t>(1e30), 127);
  EXPECT_EQ(from_double<std::int8_t>(-1e30), -128);
  EXPECT_EQ(from_double<std::int8_t>(std::nan("")), 0);
}

TEST(NumberFormatElement, LoadsAndStoresByType) {
  Float16 halves[3] = {};
  store_element(DType::f16, halves, 2, -1.5);
  EXPECT_EQ(load_element(DType::f16, halves, 2), -1.5);
  double doubles[2] = {};
  store_element(DType::f64, doubles, 1, 0.1);
  EXPECT_EQ(load_element(DType::f64, doubles, 1), 0.1);
}

}  // namespace
}  // namespace onchip
