// What standard attention cannot take.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "core/problem.hpp"

namespace onchip::cpu {

/// OpenBLAS counts rows and columns in 32 bits, and the scores must have an address.
inline std::optional<std::string> standard_limits(const Problem& p) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 30;
  constexpr double kMostScores = 0x1p58;
  if (p.max_seqlen_q > kLongest || p.max_seqlen_k > kLongest || p.head_dim > kLongest || p.head_dim_v > kLongest)
    return fmt::format("sizes of more than {} are beyond the library it calls for products", kLongest);
  const double scores = static_cast<double>(p.batch) * static_cast<double>(p.num_heads_q) *
                        static_cast<double>(p.max_seqlen_q) * static_cast<double>(p.max_seqlen_k);
  if (scores > kMostScores) return fmt::format("{:.3g} scores are more than memory can hold", scores);
  return std::nullopt;
}

}  // namespace onchip::cpu
