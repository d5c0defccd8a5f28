#include "shared/mask_range.hpp"

#include <gtest/gtest.h>

namespace onchip {
namespace {

bool visible(const MaskRange& mask, std::int64_t i, std::int64_t j) {
  const std::int64_t d = j - (i + mask.shift);
  return (mask.window_left < 0 || d >= -mask.window_left) && (mask.window_right < 0 || d <= mask.window_right);
}

/// Every small mask against the definition, pair by pair.
TEST(MaskRange, AgreesWithTheDefinition) {
  for (std::int64_t seqlen_q : {0, 1, 3, 8})
    for (std::int64_t seqlen_k : {0, 1, 5, 8})
      for (std::int64_t left = -1; left < 6; ++left)
        for (std::int64_t right = -1; right < 6; ++right)
          for (std::int64_t shift : {seqlen_k - seqlen_q, std::int64_t{0}}) {
            const MaskRange mask{seqlen_k, shift, left, right};
            double pairs = 0;
            for (std::int64_t i = 0; i < seqlen_q; ++i) {
              for (std::int64_t j = 0; j < seqlen_k; ++j) {
                EXPECT_EQ(mask.keys(i).contains(j), visible(mask, i, j));
                EXPECT_EQ(mask.queries({j, j + 1}, seqlen_q).contains(i), visible(mask, i, j));
                pairs += visible(mask, i, j);
              }
              for (std::int64_t last = i; last < seqlen_q; ++last) {
                const KeyRange any = mask.keys_of_any(i, last);
                const KeyRange all = mask.keys_of_all(i, last);
                for (std::int64_t j = 0; j < seqlen_k; ++j) {
                  bool by_any = false;
                  bool by_all = true;
                  for (std::int64_t row = i; row <= last; ++row) {
                    by_any |= visible(mask, row, j);
                    by_all &= visible(mask, row, j);
                  }
                  EXPECT_TRUE(any.contains(j) || !by_any);
                  EXPECT_EQ(all.contains(j), by_all);
                }
              }
            }
            EXPECT_EQ(mask.visible_pairs(seqlen_q), pairs);
          }
}

}  // namespace
}  // namespace onchip
