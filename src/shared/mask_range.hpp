// Which keys a query can see through the causal mask and the window: pure code that CPU and GPU compilers both read.
#pragma once

#include <cstdint>

namespace onchip {

/// Half-open range of key indices.
struct KeyRange {
  std::int64_t begin;
  std::int64_t end;

  constexpr std::int64_t size() const { return end - begin; }
  constexpr bool empty() const { return end <= begin; }
  constexpr bool contains(std::int64_t key) const { return begin <= key && key < end; }
};

/// Causal mask and window of one sequence. Key j is visible to query i when −left ≤ j − (i + shift) ≤ right; a bound of
/// −1 is none. Causal is right = 0.
struct MaskRange {
  std::int64_t seqlen_k;
  std::int64_t shift;         // where query 0 stands among the keys: seqlen_k − seqlen_q, or 0 for top-left alignment
  std::int64_t window_left;   // −1: no bound
  std::int64_t window_right;  // −1: no bound

  constexpr bool bounded() const { return window_left >= 0 || window_right >= 0; }

  /// Keys visible to query i.
  constexpr KeyRange keys(std::int64_t i) const {
    const std::int64_t position = i + shift;
    std::int64_t begin = window_left < 0 ? 0 : position - window_left;
    std::int64_t end = window_right < 0 ? seqlen_k : position + window_right + 1;
    begin = begin < 0 ? 0 : begin > seqlen_k ? seqlen_k : begin;
    end = end > seqlen_k ? seqlen_k : end;
    return {begin, end < begin ? begin : end};
  }

  /// Keys visible to at least one of the queries first…last (inclusive): tiles outside may be skipped.
  constexpr KeyRange keys_of_any(std::int64_t first, std::int64_t last) const {
    const KeyRange range{keys(first).begin, keys(last).end};
    return {range.begin, range.end < range.begin ? range.begin : range.end};
  }

  /// Keys visible to each of the queries first…last (inclusive): tiles inside need no masking.
  constexpr KeyRange keys_of_all(std::int64_t first, std::int64_t last) const {
    const KeyRange range{keys(last).begin, keys(first).end};
    return {range.begin, range.end < range.begin ? range.begin : range.end};
  }

  /// Queries among 0…seqlen_q−1 that see at least one key of [key_begin, key_end).
  constexpr KeyRange queries(KeyRange key, std::int64_t seqlen_q) const {
    std::int64_t begin = window_right < 0 ? 0 : key.begin - shift - window_right;
    std::int64_t end = window_left < 0 ? seqlen_q : key.end - 1 - shift + window_left + 1;
    begin = begin < 0 ? 0 : begin;
    end = end > seqlen_q ? seqlen_q : end;
    return {begin, end < begin ? begin : end};
  }

  /// Number of (query, key) pairs left over seqlen_q queries.
  constexpr double visible_pairs(std::int64_t seqlen_q) const {
    const double begins = window_left < 0 ? 0 : clamped_sum(shift - window_left, seqlen_q);
    const double ends = window_right < 0 ? static_cast<double>(seqlen_q) * static_cast<double>(seqlen_k)
                                         : clamped_sum(shift + window_right + 1, seqlen_q);
    return ends - begins;
  }

 private:
  /// Σ over 0 ≤ i < count of first + i, each clamped to 0…seqlen_k.
  constexpr double clamped_sum(std::int64_t first, std::int64_t count) const {
    const std::int64_t past = first + count;
    const std::int64_t low = first > 0 ? first : 0;
    const std::int64_t high = past < seqlen_k ? past : seqlen_k;
    const std::int64_t above = past > seqlen_k ? past - (first > seqlen_k ? first : seqlen_k) : 0;
    const double inside = low < high ? static_cast<double>(low + high - 1) * static_cast<double>(high - low) / 2 : 0;
    return inside + static_cast<double>(above) * static_cast<double>(seqlen_k);
  }
};

}  // namespace onchip
