#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "cpu/simd_functions.hpp"

namespace onchip::cpu {
namespace {

enum class Order { rows, columns };

template <typename T>
void check_gemm(int start, std::int64_t rows, std::int64_t lanes, std::int64_t depth, Order order) {
  SCOPED_TRACE(::testing::Message() << "start " << start << ", " << rows << "x" << lanes << "x" << depth);
  std::mt19937 random(static_cast<unsigned>(rows * 31 + lanes * 7 + depth));
  std::uniform_real_distribution<double> uniform(-1, 1);
  const std::int64_t padding = simd_functions<T>().vector_lanes(), stride = lanes + padding;
  std::vector<T> a(static_cast<std::size_t>(rows * depth));
  Scratch<T> b(static_cast<std::size_t>(depth * stride)), c(static_cast<std::size_t>((rows + 1) * stride)),
      factor(static_cast<std::size_t>(lanes));
  for (T& x : a) x = static_cast<T>(uniform(random));
  for (std::int64_t i = 0; i < depth * stride; ++i) b[i] = static_cast<T>(uniform(random));
  for (std::int64_t i = 0; i < (rows + 1) * stride; ++i) c[i] = static_cast<T>(uniform(random));
  for (std::int64_t i = 0; i < lanes; ++i) factor[i] = static_cast<T>(uniform(random));
  const std::vector<T> before(c.data(), c.data() + (rows + 1) * stride);
  const std::int64_t row_stride = order == Order::rows ? depth : 1, col_stride = order == Order::rows ? 1 : rows;

  simd_functions<T>().gemm({start, rows, lanes, depth, a.data(), row_stride, col_stride, b.data(), stride, c.data(),
                            stride, start == 2 ? factor.data() : nullptr});

  const double unit = std::numeric_limits<T>::epsilon();
  for (std::int64_t i = 0; i <= rows; ++i) {
    for (std::int64_t lane = 0; lane < stride; ++lane) {
      const T old = before[static_cast<std::size_t>(i * stride + lane)];
      if (i == rows || lane >= lanes) {
        ASSERT_EQ(c[i * stride + lane], old) << "written outside, row " << i << ", lane " << lane;
        continue;
      }
      double want = start == 0 ? 0.0 : start == 1 ? double(old) : double(old) * double(factor[lane]);
      for (std::int64_t k = 0; k < depth; ++k)
        want += double(a[static_cast<std::size_t>(i * row_stride + k * col_stride)]) * double(b[k * stride + lane]);
      ASSERT_NEAR(c[i * stride + lane], want, unit * (4 + double(depth))) << "row " << i << ", lane " << lane;
    }
  }
}

template <typename T>
void check_shapes() {
  const std::int64_t vector = simd_functions<T>().vector_lanes();
  for (std::int64_t rows = 1; rows <= 19; ++rows)
    for (std::int64_t vectors = 1; vectors <= 7; ++vectors)
      check_gemm<T>(static_cast<int>(rows % 3), rows, vectors * vector, 5, rows % 2 ? Order::rows : Order::columns);
  for (int start = 0; start < 3; ++start) {
    check_gemm<T>(start, 67, 3 * vector, 0, Order::rows);
    check_gemm<T>(start, 67, 4 * vector, 129, Order::rows);
    check_gemm<T>(start, 64, 6 * vector, 77, Order::columns);
  }
}

TEST(Gemm, EveryShapeOfBlockAddsUp) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    check_shapes<float>();
    check_shapes<double>();
  });
}

TEST(Gemm, BitsOfALaneDoNotDependOnItsNeighbours) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    const std::int64_t vector = simd_functions<float>().vector_lanes(), lanes = 3 * vector, rows = 8, depth = 50;
    Scratch<float> b(static_cast<std::size_t>(depth * lanes)), wide(static_cast<std::size_t>(rows * lanes)),
        narrow(static_cast<std::size_t>(vector));
    std::vector<float> a(static_cast<std::size_t>(rows * depth));
    for (std::int64_t i = 0; i < depth * lanes; ++i) b[i] = std::sin(static_cast<float>(i));
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::cos(static_cast<float>(3 * i));
    const auto& simd = simd_functions<float>();
    simd.gemm({0, rows, lanes, depth, a.data(), depth, 1, b.data(), lanes, wide.data(), lanes, nullptr});
    for (std::int64_t i = 0; i < rows; ++i) {
      simd.gemm({0, 1, vector, depth, a.data() + i * depth, depth, 1, b.data() + vector, lanes, narrow.data(), vector,
                 nullptr});
      for (std::int64_t lane = 0; lane < vector; ++lane) ASSERT_EQ(narrow[lane], wide[i * lanes + vector + lane]);
    }
  });
}

template <typename T>
void check_dot(std::int64_t rows, std::int64_t keys, std::int64_t vectors) {
  SCOPED_TRACE(::testing::Message() << rows << " rows, " << keys << " keys, " << vectors << " vectors");
  const std::int64_t depth = vectors * simd_functions<T>().vector_lanes(), room = (keys + 3) / 4 * 4;
  const std::int64_t k_stride = depth + 3;  // unaligned rows, as in a caller's tensor
  Scratch<T> q(static_cast<std::size_t>(rows * depth)), scores(static_cast<std::size_t>(rows * room));
  std::vector<T> k(static_cast<std::size_t>(keys * k_stride));
  for (std::int64_t i = 0; i < rows * depth; ++i) q[i] = static_cast<T>(std::sin(0.7 * double(i)));
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = static_cast<T>(std::cos(0.3 * double(i)));
  simd_functions<T>().dot_keys(rows, keys, depth, q.data(), depth, k.data(), k_stride, scores.data(), room);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < keys; ++j) {
      double want = 0;
      for (std::int64_t i = 0; i < depth; ++i)
        want += double(q[r * depth + i]) * double(k[static_cast<std::size_t>(j * k_stride + i)]);
      ASSERT_NEAR(scores[r * room + j], want, std::numeric_limits<T>::epsilon() * (2 + double(depth)));
    }
  }
}

TEST(Dot, AnyNumberOfRowsAndKeys) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    for (std::int64_t rows : {1, 2, 3, 16})
      for (std::int64_t keys : {1, 3, 4, 9, 32}) {
        check_dot<float>(rows, keys, 4);
        check_dot<double>(rows, keys, 3);
      }
  });
}

TEST(Dot, BitsOfAKeyDoNotDependOnHowManyFollow) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    const std::int64_t depth = 2 * simd_functions<float>().vector_lanes();
    Scratch<float> q(static_cast<std::size_t>(depth)), few(8), many(8);
    std::vector<float> k(static_cast<std::size_t>(8 * depth));
    for (std::int64_t i = 0; i < depth; ++i) q[i] = std::sin(static_cast<float>(i));
    for (std::size_t i = 0; i < k.size(); ++i) k[i] = std::cos(static_cast<float>(i));
    simd_functions<float>().dot_keys(1, 8, depth, q.data(), depth, k.data(), depth, many.data(), 8);
    simd_functions<float>().dot_keys(1, 5, depth, q.data(), depth, k.data(), depth, few.data(), 8);
    for (std::int64_t j = 0; j < 5; ++j) ASSERT_EQ(few[j], many[j]);
  });
}

}  // namespace
}  // namespace onchip::cpu
