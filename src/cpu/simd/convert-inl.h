// Rows of stored elements to compute type T (float or double) and back, a vector at a time.
//
// Narrow floats travel through binary16: e5m2 is its upper byte, e4m3 its bits shifted by one place and 2^8 smaller.
// Encoding rounds to nearest even, keeps NaN and infinity, and gives denormals their right value. The scalar
// counterpart is core/number_format.hpp.
#if defined(ONCHIP_CPU_SIMD_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONCHIP_CPU_SIMD_CONVERT_INL_H_
#undef ONCHIP_CPU_SIMD_CONVERT_INL_H_
#else
#define ONCHIP_CPU_SIMD_CONVERT_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "core/number_format.hpp"
#include "cpu/simd/byte_table-inl.h"
#include "cpu/simd/targets.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// binary16 codes, one in each lane of a u16 vector, as floats.
template <class DF, class VU16>
HWY_INLINE auto halves_to_float(DF df, VU16 codes) {
#if ONCHIP_FALLBACK_TARGET
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::PromoteTo(du, codes);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFF));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
  const auto finite = hn::Mul(hn::BitCast(df, hn::ShiftLeft<13>(magnitude)), hn::Set(df, 0x1p112f));
  const auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(du, 0x7F800000));
  const auto is_special = hn::Gt(magnitude, hn::Set(du, 0x7BFF));
  return hn::BitCast(df, hn::Or(hn::IfThenElse(is_special, special, hn::BitCast(du, finite)), sign));
#else
  return hn::PromoteTo(df, hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), codes));
#endif
}

/// A vector of float from elements at p (any alignment).
template <class DF, typename Element>
HWY_INLINE auto load_as_float(DF df, const Element* HWY_RESTRICT p) {
  const hn::Rebind<std::uint16_t, DF> du16;
  const hn::Rebind<std::uint8_t, DF> du8;
  if constexpr (std::is_same_v<Element, BFloat16>) {
    const hn::Rebind<std::uint32_t, DF> du32;
    const auto codes = hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(p));
    return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du32, codes)));
  } else if constexpr (std::is_same_v<Element, Float16>) {
    return halves_to_float(df, hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(p)));
  } else if constexpr (std::is_same_v<Element, Float8E5M2>) {
    const auto codes = hn::PromoteTo(du16, hn::LoadU(du8, reinterpret_cast<const std::uint8_t*>(p)));
    return halves_to_float(df, hn::ShiftLeft<8>(codes));
  } else if constexpr (std::is_same_v<Element, Float8E4M3>) {
    const auto codes = hn::PromoteTo(du16, hn::LoadU(du8, reinterpret_cast<const std::uint8_t*>(p)));
    const auto magnitude = hn::And(codes, hn::Set(du16, 0x7F));
    const auto sign = hn::ShiftLeft<8>(hn::AndNot(hn::Set(du16, 0x7F), codes));
    const auto shifted =
        hn::IfThenElse(hn::Eq(magnitude, hn::Set(du16, 0x7F)), hn::Set(du16, 0x7E00), hn::ShiftLeft<7>(magnitude));
    return hn::Mul(halves_to_float(df, hn::Or(shifted, sign)), hn::Set(df, 256.0f));
  } else if constexpr (std::is_same_v<Element, std::int8_t>) {
    const hn::Rebind<std::int8_t, DF> di8;
    const hn::Rebind<std::int32_t, DF> di32;
    return hn::ConvertTo(df, hn::PromoteTo(di32, hn::LoadU(di8, p)));
  } else {
    static_assert(std::is_same_v<Element, float>);
    return hn::LoadU(df, p);
  }
}

/// A vector of T from elements at p (any alignment).
template <class D, typename Element>
HWY_INLINE auto load_as(D d, const Element* HWY_RESTRICT p) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_same_v<T, Element>) {
    return hn::LoadU(d, p);
  } else if constexpr (std::is_same_v<T, double>) {
    return hn::PromoteTo(d, load_as_float(hn::Rebind<float, D>(), p));
  } else {
    return load_as_float(d, p);
  }
}

/// Calls use(vector's index, vector) for kVectors (1 or 4) vectors of T from elements at p (any alignment).
template <int kVectors, class D, typename Element, class Use>
HWY_INLINE void read_vectors(D d, const Element* HWY_RESTRICT p, const Use& use) {
#if ONCHIP_HAVE_BYTE_TABLE
  if constexpr (kVectors == 4 && kIsFloat8<Element> && std::is_same_v<hn::TFromD<D>, float>) {
    return read_through_table(p, use);
  }
#endif
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  use(Index<0>(), load_as(d, p));
  if constexpr (kVectors == 4) {
    use(Index<1>(), load_as(d, p + lanes));
    use(Index<2>(), load_as(d, p + 2 * lanes));
    use(Index<3>(), load_as(d, p + 3 * lanes));
  }
}

#if ONCHIP_FALLBACK_TARGET
/// binary16 codes of floats in the low half of each lane. Highway's own conversion truncates on these targets.
template <class DF, class V>
HWY_INLINE auto float_to_half_codes(DF df, V v) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, hn::Abs(v));
  const auto sign = hn::ShiftLeft<15>(hn::ShiftRight<31>(hn::BitCast(du, v)));
  const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0xFFF)), odd);
  const auto normal = hn::Sub(hn::ShiftRight<13>(rounded), hn::Set(du, (127 - 15) << 10));
  // Adding 0.5 leaves multiples of 2^-24, the smallest denormal, in the low bits of the sum, rounded to nearest even.
  const auto half = hn::Set(df, 0.5f);
  const auto denormal = hn::Sub(hn::BitCast(du, hn::Add(hn::Abs(v), half)), hn::BitCast(du, half));
  const auto finite = hn::IfThenElse(hn::Lt(bits, hn::Set(du, (127 - 14) << 23)), denormal, normal);
  const auto bounded = hn::Min(finite, hn::Set(du, 0x7C00));
  const auto nan = hn::Gt(bits, hn::Set(du, 0x7F800000));
  return hn::Or(hn::IfThenElse(nan, hn::Set(du, 0x7E00), bounded), sign);
}
#endif

/// Stores v as elements at p (any alignment): T itself, and from float also bf16 and f16.
template <class D, class V, typename Element>
HWY_INLINE void store_as(D d, V v, Element* HWY_RESTRICT p) {
  if constexpr (std::is_same_v<hn::TFromD<D>, Element>) {
    hn::StoreU(v, d, p);
  } else if constexpr (std::is_same_v<Element, BFloat16>) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7FFF)), odd));
    const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
    const auto codes = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
    const hn::Rebind<std::uint16_t, D> du16;
    hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, codes)), du16, reinterpret_cast<std::uint16_t*>(p));
  } else {
    static_assert(std::is_same_v<Element, Float16>);
    const hn::Rebind<std::uint16_t, D> du16;
#if ONCHIP_FALLBACK_TARGET
    const auto codes = hn::DemoteTo(du16, hn::BitCast(hn::RebindToSigned<D>(), float_to_half_codes(d, v)));
#else
    const auto codes = hn::BitCast(du16, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
#endif
    hn::StoreU(codes, du16, reinterpret_cast<std::uint16_t*>(p));
  }
}

/// dst[0, n) = factor · src[0, n), then zeros up to a whole vector. dst is scratch with room for them.
template <typename T, typename Element>
HWY_INLINE void load_row(const Element* HWY_RESTRICT src, int64_t n, T factor, T* HWY_RESTRICT dst) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::Store(hn::Mul(load_as(d, src + i), scale), d, dst + i);
  if (i == n) return;
  HWY_ALIGN Element tail[hn::MaxLanes(hn::ScalableTag<T>())] = {};
  for (int64_t j = i; j < n; ++j) tail[j - i] = src[j];
  hn::Store(hn::Mul(load_as(d, tail), scale), d, dst + i);
}

/// dst[r·dst_stride + …] = row r of src, as load_row() with a factor of 1, for `rows` rows src_bytes apart.
template <typename Element, typename T>
HWY_INLINE void load_rows(const std::byte* src, int64_t src_bytes, int64_t rows, int64_t n, T* HWY_RESTRICT dst,
                          int64_t dst_stride) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r) {
    const auto* HWY_RESTRICT row = reinterpret_cast<const Element*>(src + r * src_bytes);
    T* HWY_RESTRICT to = dst + r * dst_stride;
    int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes)
      read_vectors<4>(d, row + i,
                      [&](auto index, auto x) ONCHIP_INLINE_LAMBDA { hn::Store(x, d, to + i + index * lanes); });
    if (n % lanes != 0) {
      load_row(row + i, n - i, T(1), to + i);
      continue;
    }
    for (; i < n; i += lanes) hn::Store(load_as(d, row + i), d, to + i);
  }
}

/// dst[0, n) = factor · src[0, n), rounded to Element; nothing past n is written.
template <typename T, typename Element>
HWY_INLINE void store_row(const T* HWY_RESTRICT src, int64_t n, T factor, Element* HWY_RESTRICT dst) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store_as(d, hn::Mul(hn::LoadU(d, src + i), scale), dst + i);
  if (i == n) return;
  HWY_ALIGN T rest[hn::MaxLanes(hn::ScalableTag<T>())] = {};
  HWY_ALIGN Element tail[hn::MaxLanes(hn::ScalableTag<T>())];
  for (int64_t j = i; j < n; ++j) rest[j - i] = src[j];
  store_as(d, hn::Mul(hn::Load(d, rest), scale), tail);
  for (int64_t j = i; j < n; ++j) dst[j] = tail[j - i];
}

/// load_row and store_row by the tensor's type. `row` is the address of the row's first element.
template <typename T>
HWY_NOINLINE void load_row(DType dtype, const void* row, int64_t n, T factor, T* HWY_RESTRICT dst) {
  if constexpr (std::is_same_v<T, double>) {
    if (dtype == DType::f64) return load_row(static_cast<const double*>(row), n, factor, dst);
  }
  switch (dtype) {
    case DType::f32:
      return load_row(static_cast<const float*>(row), n, factor, dst);
    case DType::bf16:
      return load_row(static_cast<const BFloat16*>(row), n, factor, dst);
    case DType::f16:
      return load_row(static_cast<const Float16*>(row), n, factor, dst);
    case DType::e4m3:
      return load_row(static_cast<const Float8E4M3*>(row), n, factor, dst);
    case DType::e5m2:
      return load_row(static_cast<const Float8E5M2*>(row), n, factor, dst);
    case DType::boolean:
    case DType::i8:
      return load_row(static_cast<const std::int8_t*>(row), n, factor, dst);
    case DType::f64:  // only with T = double, above
    case DType::i32:
      break;  // no tensor of numbers has this type
  }
}

template <typename T>
HWY_NOINLINE void load_rows(DType dtype, const std::byte* src, int64_t src_bytes, int64_t rows, int64_t n,
                            T* HWY_RESTRICT dst, int64_t dst_stride) {
  if constexpr (std::is_same_v<T, double>) {
    if (dtype == DType::f64) return load_rows<double>(src, src_bytes, rows, n, dst, dst_stride);
  }
  switch (dtype) {
    case DType::f32:
      return load_rows<float>(src, src_bytes, rows, n, dst, dst_stride);
    case DType::bf16:
      return load_rows<BFloat16>(src, src_bytes, rows, n, dst, dst_stride);
    case DType::f16:
      return load_rows<Float16>(src, src_bytes, rows, n, dst, dst_stride);
    case DType::e4m3:
      return load_rows<Float8E4M3>(src, src_bytes, rows, n, dst, dst_stride);
    case DType::e5m2:
      return load_rows<Float8E5M2>(src, src_bytes, rows, n, dst, dst_stride);
    case DType::i8:
      return load_rows<std::int8_t>(src, src_bytes, rows, n, dst, dst_stride);
    case DType::f64:
    case DType::i32:
    case DType::boolean:
      break;  // no keys or values of this type, or only with T = double
  }
}

/// From double to narrower types, which is rare, one element at a time.
template <typename T>
HWY_NOINLINE void store_row(DType dtype, const T* HWY_RESTRICT src, int64_t n, T factor, void* row) {
  if constexpr (std::is_same_v<T, double>) {
    if (dtype == DType::f64) return store_row(src, n, factor, static_cast<double*>(row));
    for (int64_t i = 0; i < n; ++i) store_element(dtype, row, i, src[i] * factor);
  } else if (dtype == DType::bf16) {
    store_row(src, n, factor, static_cast<BFloat16*>(row));
  } else if (dtype == DType::f16) {
    store_row(src, n, factor, static_cast<Float16*>(row));
  } else {
    store_row(src, n, factor, static_cast<float*>(row));
  }
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONCHIP_CPU_SIMD_CONVERT_INL_H_
