#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "onchip/onchip.hpp"
#include "support/owned_tensor.hpp"

namespace onchip {
namespace {

using test::OwnedTensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// n parts of [B, S, H, D] with random contents, and the merge of them in double.
struct Case {
  static constexpr std::int64_t kBatch = 2, kPositions = 5, kHeads = 3;
  static constexpr std::int64_t kRows = kBatch * kPositions * kHeads;

  Case(int count, std::int64_t d, DType o_type, DType lse_type) : head_dim(d) {
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    for (int part = 0; part < count; ++part) {
      o_parts.emplace_back(o_type, std::initializer_list<std::int64_t>{kBatch, kPositions, kHeads, d});
      lse_parts.emplace_back(lse_type, std::initializer_list<std::int64_t>{kBatch, kHeads, kPositions});
      for (std::int64_t i = 0; i < kRows * d; ++i) o_parts.back().set(i, normal(random));
      for (std::int64_t i = 0; i < kRows; ++i) lse_parts.back().set(i, 3 * normal(random));
    }
  }

  /// Where the lse of row (b, s, h) lies in [B, H, S].
  static std::int64_t lse_index(std::int64_t row) {
    const std::int64_t h = row % kHeads, s = row / kHeads % kPositions, b = row / kHeads / kPositions;
    return (b * kHeads + h) * kPositions + s;
  }

  double expected_lse(std::int64_t row) const {
    double m = -kInfinity, sum = 0;
    for (const OwnedTensor& lse : lse_parts) m = std::max(m, lse.get(lse_index(row)));
    if (m == -kInfinity) return m;
    for (const OwnedTensor& lse : lse_parts) sum += std::exp(lse.get(lse_index(row)) - m);
    return m + std::log(sum);
  }

  double expected_o(std::int64_t row, std::int64_t d) const {
    const double lse = expected_lse(row);
    double o = 0;
    for (std::size_t i = 0; i < o_parts.size(); ++i) {
      const double part = lse_parts[i].get(lse_index(row));
      if (part != -kInfinity) o += o_parts[i].get(row * head_dim + d) * std::exp(part - lse);
    }
    return o;
  }

  void merge_into(const Tensor& o, const Tensor& lse) const {
    std::vector<Tensor> o_views, lse_views;
    for (const OwnedTensor& part : o_parts) o_views.push_back(part.view);
    for (const OwnedTensor& part : lse_parts) lse_views.push_back(part.view);
    merge(o_views, lse_views, o, lse);
  }

  std::int64_t head_dim;
  std::vector<OwnedTensor> o_parts, lse_parts;
};

TEST(Merge, AgreesWithTheFormulaInEveryType) {
  const std::pair<DType, double> types[] = {
      {DType::f64, 1e-14}, {DType::f32, 1e-6}, {DType::bf16, 0x1p-8}, {DType::f16, 0x1p-11}};
  for (const auto& [type, tolerance] : types)
    for (DType lse_type : {DType::f32, DType::f64})
      for (int count : {1, 2, 5})
        for (std::int64_t d : {1, 7, 64, 300}) {
          SCOPED_TRACE(std::string(name(type)) + " lse " + name(lse_type) + " parts " + std::to_string(count) + " D " +
                       std::to_string(d));
          const Case c(count, d, type, lse_type);
          OwnedTensor o(type, {Case::kBatch, Case::kPositions, Case::kHeads, d});
          OwnedTensor lse(lse_type, {Case::kBatch, Case::kHeads, Case::kPositions});
          c.merge_into(o.view, lse.view);
          const double lse_tolerance = lse_type == DType::f32 ? 1e-6 : type == DType::f64 ? 1e-14 : 1e-12;
          for (std::int64_t row = 0; row < Case::kRows; ++row) {
            const double want = c.expected_lse(row);
            ASSERT_NEAR(lse.get(Case::lse_index(row)), want, lse_tolerance * (1 + std::abs(want)));
            for (std::int64_t i = 0; i < d; ++i) {
              const double value = c.expected_o(row, i);
              ASSERT_NEAR(o.get(row * d + i), value, tolerance * (0.5 + std::abs(value)));
            }
          }
        }
}

TEST(Merge, PartsWithoutKeysAreNotLookedAt) {
  Case c(3, 8, DType::f32, DType::f32);
  const auto empty = [&](int part, std::int64_t row) {
    c.lse_parts[part].set(Case::lse_index(row), -kInfinity);
    for (int i = 0; i < 8; ++i) c.o_parts[part].set(row * 8 + i, kNan);
  };
  empty(1, 4);
  for (int part = 0; part < 3; ++part) empty(part, 6);
  OwnedTensor o(DType::f32, {2, 5, 3, 8}), lse(DType::f32, {2, 3, 5});
  c.merge_into(o.view, lse.view);
  EXPECT_EQ(lse.get(Case::lse_index(6)), -kInfinity);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(o.get(6 * 8 + i), 0.0);
    EXPECT_NEAR(o.get(4 * 8 + i), c.expected_o(4, i), 1e-6);
  }
}

TEST(Merge, HugeAndTinyLogitsAreOrdinary) {
  Case c(2, 2, DType::f32, DType::f32);
  for (std::int64_t row = 0; row < Case::kRows; ++row)
    for (int part = 0; part < 2; ++part)
      c.lse_parts[part].set(Case::lse_index(row), (row % 2 ? 60000.0 : -60000.0) + part);
  OwnedTensor o(DType::f32, {2, 5, 3, 2}), lse(DType::f32, {2, 3, 5});
  c.merge_into(o.view, lse.view);
  for (std::int64_t row = 0; row < Case::kRows; ++row) {
    EXPECT_NEAR(lse.get(Case::lse_index(row)), c.expected_lse(row), 0x1p-8);
    for (int i = 0; i < 2; ++i) EXPECT_NEAR(o.get(row * 2 + i), c.expected_o(row, i), 1e-6);
  }
}

TEST(Merge, NanStaysInItsRow) {
  Case c(2, 4, DType::f32, DType::f32);
  c.lse_parts[1].set(Case::lse_index(3), kNan);
  c.lse_parts[0].set(Case::lse_index(9), kNan);  // beside a part without keys
  c.lse_parts[1].set(Case::lse_index(9), -kInfinity);
  c.o_parts[0].set(5 * 4 + 2, kNan);
  OwnedTensor o(DType::f32, {2, 5, 3, 4}), lse(DType::f32, {2, 3, 5});
  c.merge_into(o.view, lse.view);
  for (std::int64_t row = 0; row < Case::kRows; ++row) {
    EXPECT_EQ(std::isnan(lse.get(Case::lse_index(row))), row == 3 || row == 9) << row;
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(std::isnan(o.get(row * 4 + i)), row == 3 || row == 9 || (row == 5 && i == 2)) << row;
  }
}

TEST(Merge, OutputMayBeAPart) {
  for (int into : {0, 1, 2}) {
    Case c(3, 300, DType::f32, DType::f32);
    OwnedTensor o(DType::f32, {2, 5, 3, 300}), lse(DType::f32, {2, 3, 5});
    c.merge_into(o.view, lse.view);
    c.merge_into(c.o_parts[into].view, c.lse_parts[into].view);
    EXPECT_EQ(std::memcmp(o.view.data, c.o_parts[into].view.data, Case::kRows * 300 * 4), 0);
    EXPECT_EQ(std::memcmp(lse.view.data, c.lse_parts[into].view.data, Case::kRows * 4), 0);
  }
}

/// Rows do not depend on each other: every row merged alone, through strided views, has the same bits.
TEST(Merge, StridedViewsAndSingleRowsGiveTheSameBits) {
  const Case c(4, 40, DType::bf16, DType::f32);
  OwnedTensor whole(DType::bf16, {2, 5, 3, 40}), whole_lse(DType::f32, {2, 3, 5});
  OwnedTensor rows(DType::bf16, {2, 5, 3, 40}), rows_lse(DType::f32, {2, 3, 5});
  c.merge_into(whole.view, whole_lse.view);
  const auto row_of = [](const Tensor& tensor, std::int64_t row) {  // packed [1, 1, 40]
    Tensor view = contiguous(static_cast<std::byte*>(tensor.data) + row * 40 * 2, DType::bf16, {1, 1, 40});
    view.stride[0] = view.stride[1] = 12345;  // not looked at
    return view;
  };
  const auto lse_of = [](const Tensor& tensor, std::int64_t row) {
    return contiguous(static_cast<float*>(tensor.data) + Case::lse_index(row), DType::f32, {1, 1});
  };
  for (std::int64_t row = 0; row < Case::kRows; ++row) {
    std::vector<Tensor> o_parts, lse_parts;
    for (const OwnedTensor& part : c.o_parts) o_parts.push_back(row_of(part.view, row));
    for (const OwnedTensor& part : c.lse_parts) lse_parts.push_back(lse_of(part.view, row));
    merge(o_parts, lse_parts, row_of(rows.view, row), lse_of(rows_lse.view, row));
  }
  EXPECT_EQ(whole.memory, rows.memory);
  EXPECT_EQ(whole_lse.memory, rows_lse.memory);

  OwnedTensor transposed(DType::bf16, {2, 3, 5, 40}), transposed_lse(DType::f32, {2, 5, 3});
  Tensor o = transposed.view, lse = transposed_lse.view;
  std::swap(o.shape[1], o.shape[2]), std::swap(o.stride[1], o.stride[2]);
  std::swap(lse.shape[1], lse.shape[2]), std::swap(lse.stride[1], lse.stride[2]);
  c.merge_into(o, lse);
  for (std::int64_t row = 0; row < Case::kRows; ++row) {
    const std::int64_t h = row % 3, s = row / 3 % 5, b = row / 15;
    EXPECT_EQ(transposed_lse.get((b * 5 + s) * 3 + h), whole_lse.get(Case::lse_index(row)));
    for (int i = 0; i < 40; ++i) EXPECT_EQ(transposed.get(((b * 3 + h) * 5 + s) * 40 + i), whole.get(row * 40 + i));
  }
}

TEST(Merge, ManyRowsOverSeveralThreadsGiveTheFormula) {
  constexpr std::int64_t kTotal = 3000, kHeads = 4, kDim = 16;
  OwnedTensor a(DType::f32, {kTotal, kHeads, kDim}), b(DType::f32, {kTotal, kHeads, kDim}),
      o(DType::f32, {kTotal, kHeads, kDim});
  OwnedTensor lse_a(DType::f32, {kHeads, kTotal}), lse_b(DType::f32, {kHeads, kTotal});
  for (std::int64_t i = 0; i < kTotal * kHeads * kDim; ++i) a.set(i, i % 17), b.set(i, i % 5);
  for (std::int64_t i = 0; i < kTotal * kHeads; ++i) lse_a.set(i, i % 7), lse_b.set(i, i % 3);
  const Tensor o_parts[] = {a.view, b.view}, lse_parts[] = {lse_a.view, lse_b.view};
  merge(o_parts, lse_parts, o.view, Tensor{});
  for (std::int64_t t = 0; t < kTotal; ++t)
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const double weight = 1 / (1 + std::exp(lse_b.get(h * kTotal + t) - lse_a.get(h * kTotal + t)));
      for (std::int64_t d = 0; d < kDim; ++d) {
        const std::int64_t i = (t * kHeads + h) * kDim + d;
        ASSERT_NEAR(o.get(i), a.get(i) * weight + b.get(i) * (1 - weight), 1e-5);
      }
    }
}

void expect_refused(std::span<const Tensor> o_parts, std::span<const Tensor> lse_parts, const Tensor& o,
                    const Tensor& lse, const std::string& message) {
  try {
    merge(o_parts, lse_parts, o, lse);
    ADD_FAILURE() << "accepted, expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), StatusCode::invalid_argument);
    EXPECT_EQ(error.what(), message);
  }
}

TEST(Merge, RefusesWhatDoesNotFit) {
  OwnedTensor a(DType::f32, {1, 2, 3, 4}), b(DType::f32, {1, 2, 3, 4}), o(DType::f32, {1, 2, 3, 4});
  OwnedTensor lse_a(DType::f32, {1, 3, 2}), lse_b(DType::f32, {1, 3, 2});
  const std::vector<Tensor> parts{a.view, b.view}, lses{lse_a.view, lse_b.view};
  const auto refused = [&](std::vector<Tensor> o_parts, std::vector<Tensor> lse_parts, Tensor result,
                           const std::string& message) { expect_refused(o_parts, lse_parts, result, {}, message); };
  refused({}, {}, o.view, "o_parts: 0 parts, expected at least 1");
  refused(parts, {lse_a.view}, o.view, "lse_parts: 1 parts, expected 2 as o_parts has");
  refused(parts, lses, {}, "o: shape [], expected [B, S, H, D] or packed [T, H, D]");
  refused(parts, {lse_a.view, Tensor{}}, o.view, "lse_parts[1]: missing, expected the lse of every part");
  OwnedTensor wide(DType::f32, {1, 2, 3, 5});
  refused({a.view, wide.view}, lses, o.view, "o_parts[1]: shape [1, 2, 3, 5], expected [1, 2, 3, 4] as o has");
  refused(parts, {lse_a.view, a.view}, o.view, "lse_parts[1]: shape [1, 2, 3, 4], expected [B, H, S] = [1, 3, 2]");
  Tensor bad = b.view;
  bad.dtype = DType::i8;
  refused({a.view, bad}, lses, o.view, "o_parts[1]: type i8, expected f64, f32, bf16 or f16");
  bad = lse_b.view;
  bad.dtype = DType::f16;
  refused(parts, {lse_a.view, bad}, o.view, "lse_parts[1]: type f16, expected f32 or f64");
  bad = o.view;
  bad.stride[1] = 0;
  refused(parts, lses, bad, "o: stride 0 over size 2, expected an output whose elements do not overlap");
  bad = a.view;
  bad.stride = {24, 4, 8, 1};
  refused(parts, lses, bad,
          "o: same address as o_parts[0] but other strides or type, expected exactly that part or other memory");
  bad = b.view;
  bad.data = nullptr;
  refused({a.view, bad}, lses, o.view,
          "o_parts[1]: data is null, expected the address of a [1, 2, 3, 4] tensor of type f32");
  bad.rank = 9;
  refused({a.view, bad}, lses, o.view,
          "o_parts[1]: shape [1, 2, 3, 4, …] (rank 9), expected [B, S, H, D] or packed [T, H, D]");
}

TEST(Merge, NothingToDoIsFine) {
  OwnedTensor o(DType::f32, {0, 3, 4}), lse(DType::f32, {3, 0});
  const Tensor o_parts[] = {o.view}, lse_parts[] = {lse.view};
  merge(o_parts, lse_parts, o.view, lse.view);
}

}  // namespace
}  // namespace onchip
