// The merge algebra of docs/semantics.md: results over disjoint sets of keys join by their lse.
//   m = max lse_i;  lse = m + ln Σ exp(lse_i − m);  o = Σ o_i·exp(lse_i − m) / Σ exp(lse_i − m)
// A part without keys (lse = −∞) has weight 0 and its o is never looked at. NaN stays NaN.
#pragma once

#include <cmath>
#include <limits>

namespace onchip {

template <typename Real>
class SoftmaxState {
 public:
  /// Two passes over the parts, always in the same order: first see() each lse, then add() each.
  void see(Real lse) { max_ = lse > max_ ? lse : max_; }
  void add(Real lse) { sum_ += unscaled_weight(lse); }

  /// What the part's o is multiplied with. The weights of all parts add up to 1, or to 0 where no part has a key.
  Real weight(Real lse) const { return is_empty(lse) ? Real(0) : unscaled_weight(lse) / sum_; }
  Real lse() const { return sum_ == Real(0) ? kEmpty : max_ + std::log(sum_); }

  static bool is_empty(Real lse) { return lse == kEmpty; }

 private:
  static constexpr Real kEmpty = -std::numeric_limits<Real>::infinity();

  Real unscaled_weight(Real lse) const { return is_empty(lse) ? Real(0) : std::exp(lse - max_); }

  Real max_ = kEmpty;
  Real sum_ = 0;
};

}  // namespace onchip
