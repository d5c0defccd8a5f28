#include "reference/formats.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/number_format.hpp"

namespace onchip::test {
namespace {

/// Two implementations written apart agree on every code and around every boundary.
TEST(Formats, AgreeWithTheLibrary) {
  for (const DType type : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2, DType::i8}) {
    const int codes = size_of(type) == 1 ? 256 : 65536;
    for (int code = 0; code < codes; ++code) {
      const std::uint64_t bits = static_cast<std::uint64_t>(code);
      const double value = decode(type, &bits, 0), theirs = load_element(type, &bits, 0);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(theirs)) << name(type) << " " << code;
        continue;
      }
      ASSERT_EQ(value, theirs) << name(type) << " " << code;
      if (std::isinf(value)) continue;
      for (const double nearby : {value, value * 1.01, value * 1.5, value * 1.0625, value + 0.5 * ulp(type, value)}) {
        std::uint64_t ours = 0, library = 0;
        encode(type, &ours, 0, nearby);
        store_element(type, &library, 0, nearby);
        ASSERT_EQ(ours, library) << name(type) << " " << nearby;
      }
    }
  }
}

TEST(Formats, UlpIsTheDistanceToTheNextNumber) {
  EXPECT_EQ(ulp(DType::f32, 1.0), 0x1p-23);
  EXPECT_EQ(ulp(DType::bf16, 3.0), 0x1p-6);
  EXPECT_EQ(ulp(DType::f16, 0.0), 0x1p-24);
  EXPECT_EQ(ulp(DType::f64, 1.0), 0x1p-52);
}

}  // namespace
}  // namespace onchip::test
