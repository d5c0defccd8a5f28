#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "core/number_format.hpp"
#include "cpu/simd_functions.hpp"

namespace onchip::cpu {
namespace {

bool same(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b); }

template <typename T>
void check_load(DType dtype, const std::vector<std::byte>& codes) {
  SCOPED_TRACE(name(dtype));
  const auto n = static_cast<std::int64_t>(codes.size() / size_of(dtype));
  Scratch<T> row(static_cast<std::size_t>(n + 64), T(7));
  simd_functions<T>().load_row(dtype, codes.data(), n, T(1), row.data());
  for (std::int64_t i = 0; i < n; ++i)
    ASSERT_TRUE(same(row[i], load_element(dtype, codes.data(), i))) << "element " << i << ": " << row[i];
  const std::int64_t lanes = simd_functions<T>().vector_lanes(), end = (n + lanes - 1) / lanes * lanes;
  for (std::int64_t i = n; i < end; ++i) ASSERT_EQ(row[i], 0) << "padding";
  ASSERT_EQ(row[end], 7) << "written past the padding";
}

/// Every code of a 1- or 2-byte type.
std::vector<std::byte> all_codes(std::size_t element) {
  std::vector<std::byte> bytes(element == 1 ? 256 : 65536 * 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(element == 1 ? i : i % 2 == 0 ? i / 2 : i / 512);
  return bytes;
}

template <typename T>
void check_loads() {
  for (DType dtype : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2, DType::i8}) {
    std::vector<std::byte> codes = all_codes(size_of(dtype));
    check_load<T>(dtype, codes);
    codes.resize(size_of(dtype) * 77);
    check_load<T>(dtype, codes);
  }
  const std::vector<float> floats = {1.5f, -0.0f, 3e-40f, INFINITY, NAN};
  std::vector<std::byte> bytes(floats.size() * sizeof(float));
  std::memcpy(bytes.data(), floats.data(), bytes.size());
  check_load<T>(DType::f32, bytes);
}

std::vector<float> awkward_floats() {
  std::vector<float> x = {0.0f,         -0.0f,    INFINITY,   -INFINITY,  NAN,        -NAN,
                          65504.0f,     65519.0f, 65520.0f,   -1e9f,      3.3895e38f, std::numeric_limits<float>::max(),
                          0x1p-24f,     0x1p-25f, 0x1.8p-25f, 0x1.8p-24f, 0x1p-14f,   0x1.ffcp-15f,
                          0x1.ffep-15f, 6e-8f,    1e-40f,     0x1p-149f};
  std::mt19937 random(5);
  for (int i = 0; i < 40000; ++i) x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (int i = 0; i < 20000; ++i) x.push_back(std::ldexp(static_cast<float>(random() % 8192 + 1), -28));
  return x;
}

template <typename Element>
void check_store(DType dtype) {
  SCOPED_TRACE(name(dtype));
  const std::vector<float> x = awkward_floats();
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<Element> row(x.size() + 1, Element{0x1234});
  simd_functions<float>().store_row(dtype, x.data(), n, 1.0f, row.data());
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_TRUE(same(to_float(row[i]), to_float(from_double<Element>(x[i])))) << x[i] << " became " << to_float(row[i]);
  ASSERT_EQ(row.back().bits, 0x1234) << "written past the row";
}

TEST(Convert, LoadsEveryCodeOfEveryType) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    check_loads<float>();
    check_loads<double>();
  });
}

TEST(Convert, StoresRoundedToNearestEven) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    check_store<BFloat16>(DType::bf16);
    check_store<Float16>(DType::f16);
  });
}

/// Rows of n elements each, which go through all codes, with odd gaps between them.
template <typename T>
void check_load_rows(DType dtype, std::int64_t n) {
  SCOPED_TRACE(::testing::Message() << name(dtype) << ", " << n << " elements");
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const std::vector<std::byte> codes = all_codes(size_of(dtype));
  const std::int64_t rows = 3 + 256 / n, stride = (n + 15) / 16 * 16, bytes = size * (n + 3);
  std::vector<std::byte> src(static_cast<std::size_t>(rows * bytes), std::byte{0xFF});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < n * size; ++i)
      src[static_cast<std::size_t>(r * bytes + i)] = codes[static_cast<std::size_t>(r * n * size + i) % codes.size()];
  Scratch<T> dst(static_cast<std::size_t>(rows * stride));
  simd_functions<T>().load_rows(dtype, src.data(), bytes, rows, n, dst.data(), stride);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < n; ++i) {
      const double want = load_element(dtype, src.data() + r * bytes, i);
      ASSERT_TRUE(same(dst[r * stride + i], want)) << "row " << r << ", element " << i << ": " << dst[r * stride + i];
    }
}

TEST(Convert, LoadsRowsAStrideApart) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const DType dtype : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2, DType::i8})
      for (const std::int64_t n : {5, 64, 80, 128}) {
        check_load_rows<float>(dtype, n);
        check_load_rows<double>(dtype, n);
      }
  });
}

TEST(Convert, FactorAppliesBothWays) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    const std::vector<double> x = {1, 2, 3, 4, 5};
    Scratch<double> row(64);
    simd_functions<double>().load_row(DType::f64, x.data(), 5, 0.1, row.data());
    for (int i = 0; i < 5; ++i) ASSERT_EQ(row[i], x[i] * 0.1);
    std::vector<double> back(5);
    simd_functions<double>().store_row(DType::f64, x.data(), 5, -2.0, back.data());
    for (int i = 0; i < 5; ++i) ASSERT_EQ(back[i], x[i] * -2.0);
  });
}

template <typename T>
void check_transpose(std::int64_t rows, std::int64_t cols) {
  const std::int64_t src_stride = (cols + 3) / 4 * 4, dst_stride = (rows + 3) / 4 * 4;
  std::vector<T> src(static_cast<std::size_t>(dst_stride * src_stride)), dst(src.size());
  for (std::size_t i = 0; i < src.size(); ++i) src[i] = static_cast<T>(i);
  simd_functions<T>().transpose(rows, cols, src.data(), src_stride, dst.data(), dst_stride);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      ASSERT_EQ(dst[static_cast<std::size_t>(c * dst_stride + r)], src[static_cast<std::size_t>(r * src_stride + c)]);
}

TEST(Transpose, AnyShape) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    for (std::int64_t rows : {1, 4, 7, 16}) {
      for (std::int64_t cols : {1, 3, 8, 65}) {
        check_transpose<float>(rows, cols);
        check_transpose<double>(rows, cols);
      }
    }
  });
}

}  // namespace
}  // namespace onchip::cpu
