// exp2 and tanh on vectors of float or double.
//
// 2^x = 2^n · 2^f with n = round(x), |f| ≤ 1/2, and 2^f = 1 + f·q(f): 2^0 is exactly 1. Rounding adds 1.5·2^23 (or
// 2^52), which leaves n in the low bits of the sum; AVX-512 has instructions for both steps. NaN stays NaN, −∞ gives
// exactly 0, +∞ gives +∞, and results below the smallest normal number are rounded once, as arithmetic does it.
#if defined(ONCHIP_CPU_SIMD_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONCHIP_CPU_SIMD_EXP2_INL_H_
#undef ONCHIP_CPU_SIMD_EXP2_INL_H_
#else
#define ONCHIP_CPU_SIMD_EXP2_INL_H_
#endif

#include "cpu/simd/targets.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
struct Exp2Constants;

template <>
struct Exp2Constants<float> {
  static constexpr float kRound = 0x1.8p23f;
  static constexpr int kMantissaBits = 23;
  static constexpr int kBias = 127;
  static constexpr float kLowest = -160.0f;  // 2^kLowest is 0, 2^kHighest is ∞
  static constexpr float kHighest = 160.0f;
  static constexpr float kTanhHighest = 18.0f;  // tanh is 1 from here on, and its derivative counts as 0
};

template <>
struct Exp2Constants<double> {
  static constexpr double kRound = 0x1.8p52;
  static constexpr int kMantissaBits = 52;
  static constexpr int kBias = 1023;
  static constexpr double kLowest = -1100.0;
  static constexpr double kHighest = 1100.0;
  static constexpr double kTanhHighest = 32.0;
};

/// Whether (2^f − 1)/f itself must be accurate, or only 2^f.
enum class Quotient { for_sum, accurate };

/// (2^f − 1)/f for |f| ≤ 1/2. Minimax in float (2^f to 9e-8, or 2e-9), Taylor's series in double (to 1e-17).
template <Quotient kQuotient, class D, class V>
HWY_INLINE V exp2_quotient(D d, V f) {
  if constexpr (sizeof(hn::TFromD<D>) == 4 && kQuotient == Quotient::for_sum) {
    V q = hn::MulAdd(hn::Set(d, 0x1.5bba14p-10f), f, hn::Set(d, 0x1.3cea88p-7f));
    q = hn::MulAdd(q, f, hn::Set(d, 0x1.c6b752p-5f));
    q = hn::MulAdd(q, f, hn::Set(d, 0x1.ebf9bcp-3f));
    return hn::MulAdd(q, f, hn::Set(d, 0x1.62e42ap-1f));
  } else if constexpr (sizeof(hn::TFromD<D>) == 4) {
    V q = hn::MulAdd(hn::Set(d, 0x1.41fbbcp-13f), f, hn::Set(d, 0x1.5f3e52p-10f));
    q = hn::MulAdd(q, f, hn::Set(d, 0x1.3b2d4cp-7f));
    q = hn::MulAdd(q, f, hn::Set(d, 0x1.c6aee8p-5f));
    q = hn::MulAdd(q, f, hn::Set(d, 0x1.ebfbdcp-3f));
    return hn::MulAdd(q, f, hn::Set(d, 0x1.62e43p-1f));
  } else {
    V q = hn::MulAdd(hn::Set(d, 1.3691488853904124e-12), f, hn::Set(d, 2.5678435993488196e-11));
    q = hn::MulAdd(q, f, hn::Set(d, 4.44553827187081e-10));
    q = hn::MulAdd(q, f, hn::Set(d, 7.054911620801121e-09));
    q = hn::MulAdd(q, f, hn::Set(d, 1.0178086009239696e-07));
    q = hn::MulAdd(q, f, hn::Set(d, 1.3215486790144305e-06));
    q = hn::MulAdd(q, f, hn::Set(d, 1.5252733804059838e-05));
    q = hn::MulAdd(q, f, hn::Set(d, 1.5403530393381606e-04));
    q = hn::MulAdd(q, f, hn::Set(d, 1.3333558146428441e-03));
    q = hn::MulAdd(q, f, hn::Set(d, 9.618129107628477e-03));
    q = hn::MulAdd(q, f, hn::Set(d, 5.5504108664821576e-02));
    q = hn::MulAdd(q, f, hn::Set(d, 2.402265069591007e-01));
    return hn::MulAdd(q, f, hn::Set(d, 6.931471805599453e-01));
  }
}

/// 2^n from n + kRound, n within the exponents of normal numbers.
template <class D, class V>
HWY_INLINE V power_of_two(D d, V n_plus_round) {
  using C = Exp2Constants<hn::TFromD<D>>;
  const hn::RebindToUnsigned<D> du;
  const auto biased = hn::Add(hn::BitCast(du, n_plus_round), hn::Set(du, C::kBias));
  return hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(biased));
}

/// v · 2^n for integers n between kLowest and kHighest. NaN in v stays.
template <class D, class V>
HWY_INLINE V scale_by_power(D d, V v, V n) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  if constexpr (sizeof(hn::TFromD<D>) == 4 && hn::MaxLanes(D()) == 16) {
    return V{_mm512_scalef_ps(v.raw, n.raw)};
  } else if constexpr (sizeof(hn::TFromD<D>) == 8 && hn::MaxLanes(D()) == 8) {
    return V{_mm512_scalef_pd(v.raw, n.raw)};
  } else
#endif
  {
    // One factor cannot hold 2^−150: two halves, of which only the second multiplication can round.
    const auto round = hn::Set(d, Exp2Constants<hn::TFromD<D>>::kRound);
    const auto half_plus_round = hn::MulAdd(n, hn::Set(d, 0.5), round);
    const auto rest = hn::Sub(n, hn::Sub(half_plus_round, round));
    return hn::Mul(hn::Mul(v, power_of_two(d, half_plus_round)), power_of_two(d, hn::Add(rest, round)));
  }
}

/// min(x, limit), NaN where x is. In this order of operands x86 keeps a NaN in x; NEON and SVE keep it in any.
template <class D, class V>
HWY_INLINE V min_or_nan(D d, V x, hn::TFromD<D> limit) {
#if ONCHIP_FALLBACK_TARGET
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, limit)), hn::Set(d, limit), x);
#else
  return hn::Min(hn::Set(d, limit), x);
#endif
}

template <class D, class V>
HWY_INLINE V max_or_nan(D d, V x, hn::TFromD<D> limit) {
#if ONCHIP_FALLBACK_TARGET
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, limit)), hn::Set(d, limit), x);
#else
  return hn::Max(hn::Set(d, limit), x);
#endif
}

#undef ONCHIP_HAVE_REDUCE
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
#define ONCHIP_HAVE_REDUCE 1
/// x minus the nearest integer; 0 for infinities.
HWY_INLINE hn::Vec512<float> reduce(hn::Vec512<float> x) {
  return hn::Vec512<float>{_mm512_reduce_ps(x.raw, _MM_FROUND_NO_EXC)};
}
HWY_INLINE hn::Vec512<double> reduce(hn::Vec512<double> x) {
  return hn::Vec512<double>{_mm512_reduce_pd(x.raw, _MM_FROUND_NO_EXC)};
}
#else
#define ONCHIP_HAVE_REDUCE 0
#endif

template <class D, class V>
HWY_INLINE V exp2(D d, V x) {
  using C = Exp2Constants<hn::TFromD<D>>;
#if ONCHIP_HAVE_REDUCE
  if constexpr (sizeof(hn::TFromD<D>) * hn::MaxLanes(D()) == 64) {
    // Neither infinities nor NaN need care here: scalef() takes any exponent.
    const auto rest = reduce(x);
    const auto power = hn::MulAdd(rest, exp2_quotient<Quotient::for_sum>(d, rest), hn::Set(d, 1));
    return scale_by_power(d, power, hn::Sub(x, rest));
  }
#endif
  x = min_or_nan(d, max_or_nan(d, x, C::kLowest), C::kHighest);
  const auto round = hn::Set(d, C::kRound);
  const auto n = hn::Sub(hn::Add(x, round), round);
  const auto f = hn::Sub(x, n);
  return scale_by_power(d, hn::MulAdd(f, exp2_quotient<Quotient::for_sum>(d, f), hn::Set(d, 1)), n);
}

/// tanh(x) = e/(e + 2) with e = exp(2|x|) − 1, which is computed without cancellation, so tiny x keep their digits;
/// large x keep theirs as 1 − 2/(e + 2). `slope` is 1 − tanh² = 4·(e + 1)/(e + 2)², which keeps its digits where tanh
/// is near 1.
template <class D, class V>
HWY_INLINE V tanh(D d, V x, V& slope) {
  using C = Exp2Constants<hn::TFromD<D>>;
  const auto magnitude = min_or_nan(d, hn::Abs(x), C::kTanhHighest);
  const auto y = hn::Mul(magnitude, hn::Set(d, 2.8853900817779268147));  // 2·log2(e)
  const auto round = hn::Set(d, C::kRound);
  const auto n_plus_round = hn::Add(y, round);
  const auto f = hn::Sub(y, hn::Sub(n_plus_round, round));
  const auto power = power_of_two(d, n_plus_round);
  const auto one_less = hn::Sub(power, hn::Set(d, 1));
  const auto e = hn::MulAdd(power, hn::Mul(f, exp2_quotient<Quotient::accurate>(d, f)), one_less);
  const auto two = hn::Set(d, 2);
  const auto e_plus_two = hn::Add(e, two);
  slope = hn::Div(hn::MulAdd(hn::Set(d, 4), e, hn::Set(d, 4)), hn::Mul(e_plus_two, e_plus_two));
  slope = hn::IfThenZeroElse(hn::Ge(magnitude, hn::Set(d, C::kTanhHighest)), slope);
  const auto large = hn::Gt(e, two);
  const auto quotient = hn::Div(hn::IfThenElse(large, hn::Neg(two), e), e_plus_two);
  return hn::CopySignToAbs(hn::Add(quotient, hn::IfThenElseZero(large, hn::Set(d, 1))), x);
}

template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
  V slope = x;
  return tanh(d, x, slope);
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONCHIP_CPU_SIMD_EXP2_INL_H_
