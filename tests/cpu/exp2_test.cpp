#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/simd_functions.hpp"

namespace onchip::cpu {
namespace {

template <typename T>
std::vector<T> apply(void (*function)(std::int64_t, const T*, T*), std::vector<T> x) {
  const std::size_t n = x.size();
  x.resize((n + 63) / 64 * 64);
  std::vector<T> y(x.size());
  function(static_cast<std::int64_t>(x.size()), x.data(), y.data());
  y.resize(n);
  return y;
}

template <typename T>
double relative_error(T got, long double want) {
  return static_cast<double>(std::abs((static_cast<long double>(got) - want) / want));
}

template <typename T>
void check_exp2(double bound) {
  std::vector<T> x;
  const T lowest = std::numeric_limits<T>::min_exponent, highest = std::numeric_limits<T>::max_exponent;
  for (int i = 0; i < 20000; ++i) x.push_back(lowest + (highest - lowest) * static_cast<T>(i) / 20000);
  for (int i = -4000; i < 4000; ++i) x.push_back(static_cast<T>(i) / 1777);
  const std::vector<T> y = apply(simd_functions<T>().exp2, x);
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_LT(relative_error(y[i], std::exp2(static_cast<long double>(x[i]))), bound) << "exp2 of " << x[i];
}

template <typename T>
void check_exp2_edges() {
  const T infinity = std::numeric_limits<T>::infinity(), denormal = std::numeric_limits<T>::denorm_min();
  const int last = std::ilogb(denormal);
  const std::vector<T> y = apply(simd_functions<T>().exp2, {-infinity, infinity, std::numeric_limits<T>::quiet_NaN(),
                                                            T(0), T(-0.0), T(1), T(-60000), T(60000), T(last),
                                                            T(last - 2), T(last + 3), -std::numeric_limits<T>::max()});
  EXPECT_EQ(y[0], 0);
  EXPECT_FALSE(std::signbit(y[0]));
  EXPECT_EQ(y[1], infinity);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], 1);
  EXPECT_EQ(y[4], 1);
  EXPECT_EQ(y[5], 2);
  EXPECT_EQ(y[6], 0);
  EXPECT_EQ(y[7], infinity);
  EXPECT_EQ(y[8], denormal);
  EXPECT_EQ(y[9], 0);
  EXPECT_EQ(y[10], 8 * denormal);
  EXPECT_EQ(y[11], 0);
}

template <typename T>
void check_tanh(double bound) {
  std::vector<T> x;
  for (double magnitude = 1e-30; magnitude < 100; magnitude *= 1.003) {
    x.push_back(static_cast<T>(magnitude));
    x.push_back(static_cast<T>(-magnitude));
  }
  const std::vector<T> y = apply(simd_functions<T>().tanh, x);
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_LT(relative_error(y[i], std::tanh(static_cast<long double>(x[i]))), bound) << "tanh of " << x[i];
  const T infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> edge =
      apply(simd_functions<T>().tanh, {infinity, -infinity, std::numeric_limits<T>::quiet_NaN(), T(0)});
  EXPECT_EQ(edge[0], 1);
  EXPECT_EQ(edge[1], -1);
  EXPECT_TRUE(std::isnan(edge[2]));
  EXPECT_EQ(edge[3], 0);
}

TEST(Exp2, FloatsAreAccurate) {
  for_each_target([](const std::string&) { check_exp2<float>(2.2e-7); });
}
TEST(Exp2, DoublesAreAccurate) {
  for_each_target([](const std::string&) { check_exp2<double>(3e-16); });
}
TEST(Exp2, EdgesAreExact) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    check_exp2_edges<float>();
    check_exp2_edges<double>();
  });
}
TEST(Tanh, FloatsAreAccurate) {
  for_each_target([](const std::string&) { check_tanh<float>(5e-7); });
}
TEST(Tanh, DoublesAreAccurate) {
  for_each_target([](const std::string&) { check_tanh<double>(1e-15); });
}

}  // namespace
}  // namespace onchip::cpu
