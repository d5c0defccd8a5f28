// Score passes and online softmax on one tile, against the formulas in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/number_format.hpp"
#include "cpu/simd_functions.hpp"

namespace onchip::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Two heads, bias and mask of their own shapes, a window, ALiBi, a softcap: all at once.
struct Features {
  static constexpr double kScale = 0.5;
  static constexpr std::int64_t kSeqlenQ = 37, kSeqlenK = 150, kHeads = 2;
  std::vector<Float16> bias = std::vector<Float16>(kHeads * kSeqlenQ * kSeqlenK);
  std::vector<std::uint8_t> mask = std::vector<std::uint8_t>(kSeqlenQ * kSeqlenK);
  std::vector<float> slopes = {0.5f, 0.03f};
  Problem problem{};
  QueryBlock block{};

  Features() {
    std::mt19937 random(11);
    for (Float16& b : bias) b = from_double<Float16>(static_cast<double>(random() % 1000) / 250 - 2);
    for (std::uint8_t& m : mask) m = random() % 4 != 0;
    problem.args.bias = contiguous(bias.data(), DType::f16, {1, kHeads, kSeqlenQ, kSeqlenK});
    problem.args.mask = contiguous(mask.data(), DType::boolean, {1, 1, kSeqlenQ, kSeqlenK});
    problem.args.alibi_slopes = contiguous(slopes.data(), DType::f32, {kHeads});
    problem.softmax_scale = kScale;
    problem.softcap = 3;
    const MaskRange range{kSeqlenK, kSeqlenK - kSeqlenQ, 20, 4};
    block = {{0, 0, 0, kSeqlenQ, kSeqlenK, range}, 0, kHeads, 6, 41};
  }

  /// The score; `product` is the tile's input.
  double score(double product, std::int64_t lane, std::int64_t key) const {
    const std::int64_t i = block.query(lane), head = block.head(lane);
    const std::int64_t position = i + block.sequence.mask.shift;
    if (!block.sequence.mask.keys(i).contains(key)) return -kInfinity;
    if (!mask[static_cast<std::size_t>(i * kSeqlenK + key)]) return -kInfinity;
    const double bias_value = to_double(bias[static_cast<std::size_t>((head * kSeqlenQ + i) * kSeqlenK + key)]);
    return 3 * std::tanh(kScale / 3 * product) + bias_value -
           double(slopes[static_cast<std::size_t>(head)]) * std::abs(static_cast<double>(position - key));
  }
};

template <typename T>
void check_score_tile(double bound) {
  Features features;
  const std::int64_t lanes = 64, key_begin = 40, keys = 97;
  std::vector<std::byte> memory(LaneTable<T>::bytes(lanes) + 64);
  WorkspaceCursor cursor(memory);
  LaneTable<T> table(features.problem, cursor, lanes);
  table.fill(features.problem, features.block, lanes);
  Scratch<T> scores(static_cast<std::size_t>(keys * lanes)), derivative(static_cast<std::size_t>(keys * lanes));
  for (std::int64_t i = 0; i < keys * lanes; ++i) scores[i] = static_cast<T>(9 * std::sin(0.37 * double(i)));
  const std::vector<T> products(scores.data(), scores.data() + keys * lanes);
  simd_functions<T>().score_tile(features.problem, table, scores.data(), lanes, key_begin, keys, 0, lanes, true, true,
                                 derivative.data());
  for (std::int64_t key = 0; key < keys; ++key) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const double product = products[static_cast<std::size_t>(key * lanes + lane)];
      const double want = features.score(product, lane, key_begin + key), got = scores[key * lanes + lane];
      if (std::isinf(want)) {
        ASSERT_EQ(got, want) << "key " << key << ", lane " << lane;
      } else {
        ASSERT_NEAR(got, want, bound) << "key " << key << ", lane " << lane;
      }
      const double t = std::tanh(Features::kScale / 3 * product);
      ASSERT_NEAR(derivative[key * lanes + lane], 1 - t * t, bound);
    }
  }
}

TEST(Score, AllTermsCompose) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    check_score_tile<float>(2e-5);
    check_score_tile<double>(1e-13);
  });
}

TEST(Score, HiddenKeysLoseEvenNaN) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    Features features;
    const std::int64_t lanes = 64, keys = 150;
    std::vector<std::byte> memory(LaneTable<float>::bytes(lanes) + 64);
    WorkspaceCursor cursor(memory);
    LaneTable<float> table(features.problem, cursor, lanes);
    table.fill(features.problem, features.block, lanes);
    Scratch<float> scores(static_cast<std::size_t>(keys * lanes), NAN);
    simd_functions<float>().score_tile(features.problem, table, scores.data(), lanes, 0, keys, 0, lanes, true, true,
                                       nullptr);
    for (std::int64_t key = 0; key < keys; ++key)
      for (std::int64_t lane = 0; lane < lanes; ++lane)
        ASSERT_EQ(std::isnan(scores[key * lanes + lane]), !std::isinf(features.score(0, lane, key)));
  });
}

TEST(MaskCover, SeesEveryByte) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    const auto cover = simd_functions<float>().mask_cover;
    std::vector<std::byte> falses(300, std::byte{0}), trues(300, std::byte{1});
    const std::vector<const std::byte*> none(5, falses.data()), all(5, trues.data());
    EXPECT_EQ(cover(none.data(), 5, 7, 290), 0);
    EXPECT_EQ(cover(all.data(), 5, 7, 290), 2);
    for (std::size_t at : {7, 8, 100, 295, 296}) {
      std::vector<std::byte> one_true = falses, one_false = trues;
      one_true[at] = std::byte{1};
      one_false[at] = std::byte{0};
      std::vector<const std::byte*> rows = none;
      rows[3] = one_true.data();
      EXPECT_EQ(cover(rows.data(), 5, 7, 290), 1) << at;
      rows = all;
      rows[4] = one_false.data();
      EXPECT_EQ(cover(rows.data(), 5, 7, 290), 1) << at;
    }
    falses[6] = falses[297] = std::byte{1};
    EXPECT_EQ(cover(none.data(), 5, 7, 290), 0) << "read outside the tile";
  });
}

template <typename T>
struct Softmax {
  static constexpr std::int64_t kLanes = 64, kKeys = 13;
  Scratch<T> row_max{kLanes, static_cast<T>(-kInfinity)}, row_sum{kLanes}, factor{kLanes}, tile{kLanes * kKeys};
  bool step(T unit) {
    return simd_functions<T>().softmax_tile(kKeys, kLanes, tile.data(), kLanes, unit, row_max.data(), row_sum.data(),
                                            factor.data());
  }
};

TEST(Softmax, TwoTilesGiveTheSumOfBoth) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    Softmax<double> softmax;
    std::vector<double> sum(softmax.kLanes), top(softmax.kLanes, -kInfinity);
    for (int round = 0; round < 2; ++round) {
      for (std::int64_t i = 0; i < softmax.kLanes * softmax.kKeys; ++i)
        softmax.tile[i] = (i % 64 == 5 ? -60000 : 0) + 30 * std::sin(double(i) * 0.7 + round);
      const std::vector<double> scores(softmax.tile.data(), softmax.tile.data() + softmax.kLanes * softmax.kKeys);
      EXPECT_TRUE(softmax.step(0.5));
      for (std::size_t i = 0; i < scores.size(); ++i) {
        const std::size_t lane = i % softmax.kLanes;
        const double rose = std::max(top[lane], scores[i]);
        sum[lane] = sum[lane] * std::exp2(0.5 * (top[lane] - rose)) + std::exp2(0.5 * (scores[i] - rose));
        top[lane] = rose;
      }
    }
    for (std::int64_t lane = 0; lane < softmax.kLanes; ++lane) {
      EXPECT_EQ(softmax.row_max[lane], top[static_cast<std::size_t>(lane)]);
      EXPECT_NEAR(softmax.row_sum[lane], sum[static_cast<std::size_t>(lane)], 1e-12);
    }
  });
}

TEST(Softmax, SaysWhetherAMaximumRose) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    Softmax<float> softmax;
    EXPECT_TRUE(softmax.step(1));
    for (std::int64_t i = 0; i < softmax.kLanes * softmax.kKeys; ++i) softmax.tile[i] = -1;
    EXPECT_FALSE(softmax.step(1));
    for (std::int64_t lane = 0; lane < softmax.kLanes; ++lane) {
      EXPECT_EQ(softmax.factor[lane], 1.0f);
      EXPECT_NEAR(softmax.row_sum[lane], 13 * 1.5f, 1e-5);
    }
    for (std::int64_t i = 0; i < softmax.kLanes * softmax.kKeys; ++i) softmax.tile[i] = i == 64 + 9 ? 2.0f : -1.0f;
    EXPECT_TRUE(softmax.step(1));
    EXPECT_EQ(softmax.factor[9], 0.25f);
    EXPECT_EQ(softmax.factor[8], 1.0f);
  });
}

TEST(Softmax, OlderResultsStayAsTheyAreUnlessTheMaximumRose) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    Softmax<float> softmax;
    for (int round = 0; round < 2; ++round) {
      for (std::int64_t i = 0; i < softmax.kLanes * softmax.kKeys; ++i)
        softmax.tile[i] = round == 1 ? -INFINITY : 11915.5f + 0.37f * static_cast<float>(i % softmax.kLanes);
      EXPECT_EQ(softmax.step(static_cast<float>(kLog2E)), round == 0);
    }
    for (std::int64_t lane = 0; lane < softmax.kLanes; ++lane) ASSERT_EQ(softmax.factor[lane], 1.0f);
  });
}

TEST(Softmax, UnusualScoresStayInTheirLane) {
  for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    Softmax<float> softmax;
    for (int round = 0; round < 2; ++round) {
      for (std::int64_t i = 0; i < softmax.kLanes * softmax.kKeys; ++i) {
        const std::int64_t lane = i % softmax.kLanes;
        softmax.tile[i] = lane == 0                  ? -INFINITY
                          : lane == 1 && i / 64 == 3 ? NAN
                          : lane == 2 && i / 64 == 4 ? INFINITY
                                                     : 1.0f;
      }
      softmax.step(1);
      EXPECT_EQ(softmax.row_sum[0], 0.0f);
      EXPECT_EQ(softmax.row_max[0], -INFINITY);
      EXPECT_EQ(softmax.tile[0], 0.0f);
      EXPECT_TRUE(std::isnan(softmax.row_sum[1]));
      EXPECT_EQ(softmax.row_sum[2], INFINITY);
      EXPECT_EQ(softmax.row_max[2], INFINITY);
      for (std::int64_t lane = 3; lane < softmax.kLanes; ++lane)
        ASSERT_EQ(softmax.row_sum[lane], 13.0f * float(round + 1));
    }
  });
}

}  // namespace
}  // namespace onchip::cpu
