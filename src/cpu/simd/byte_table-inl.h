// 8-bit floats to float through tables, 64 at a time, where bytes can be looked up in 128 (AVX-512 VBMI).
//
// Both types are bfloat16 with fewer bits, so their floats end in 16 zeros. One table gives the upper byte of the
// magnitude, one the lower; NaN, infinities and denormals come out as stored. The codes are first brought into an order
// from which interleaving the two bytes within blocks of 128 bits, and taking even and odd pairs, gives vectors of
// consecutive elements. 10 instructions for 64 elements, where binary16 takes 40 (e4m3).
#if defined(ONCHIP_CPU_SIMD_BYTE_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONCHIP_CPU_SIMD_BYTE_TABLE_INL_H_
#undef ONCHIP_CPU_SIMD_BYTE_TABLE_INL_H_
#else
#define ONCHIP_CPU_SIMD_BYTE_TABLE_INL_H_
#endif

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/number_format.hpp"
#include "cpu/simd/targets.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Which of a few vectors: a number that the compiler knows.
template <int64_t kIndex>
using Index = std::integral_constant<int64_t, kIndex>;

template <typename Element>
inline constexpr bool kIsFloat8 = std::is_same_v<Element, Float8E4M3> || std::is_same_v<Element, Float8E5M2>;

#undef ONCHIP_HAVE_BYTE_TABLE
#if HWY_TARGET <= HWY_AVX3_DL && HWY_ARCH_X86
#define ONCHIP_HAVE_BYTE_TABLE 1

/// Byte `byte` of the float of each magnitude.
template <typename Element, int byte>
struct MagnitudeBytes {
  alignas(64) static constexpr std::array<std::uint8_t, 128> kTable = [] {
    std::array<std::uint8_t, 128> table{};
    for (std::size_t code = 0; code < table.size(); ++code) {
      const auto bits = std::bit_cast<std::uint32_t>(to_float(Element{static_cast<std::uint8_t>(code)}));
      table[code] = static_cast<std::uint8_t>(bits >> 8 * byte);
    }
    return table;
  }();
};

/// Which element goes where before the interleaving. Block b's lower half becomes words 8·b…, of which the even ones
/// are elements 4·b… of the first vector and the odd ones of the second; its upper half those of the third and fourth.
struct TableOrder {
  alignas(64) static constexpr std::array<std::uint8_t, 64> kOrder = [] {
    std::array<std::uint8_t, 64> order{};
    for (std::size_t at = 0; at < order.size(); ++at) {
      const std::size_t block = at / 16, half = at % 16 / 8, pair = at % 8 / 2, odd = at % 2;
      order[at] = static_cast<std::uint8_t>(16 * (2 * half + odd) + 4 * block + pair);
    }
    return order;
  }();
};

/// Calls use(vector's index, floats) for the four vectors of codes at p (any alignment).
template <typename Element, class Use>
HWY_INLINE void read_through_table(const Element* HWY_RESTRICT p, const Use& use) {
  using Floats = hn::Vec512<float>;
  const auto load = [](const std::uint8_t* table) ONCHIP_INLINE_LAMBDA { return _mm512_load_si512(table); };
  const auto& upper = MagnitudeBytes<Element, 3>::kTable;
  const auto& lower = MagnitudeBytes<Element, 2>::kTable;
  const __m512i codes = _mm512_permutexvar_epi8(load(TableOrder::kOrder.data()), _mm512_loadu_si512(p));
  const __m512i high_byte = _mm512_permutex2var_epi8(load(upper.data()), codes, load(upper.data() + 64));
  const __m512i low_byte = _mm512_permutex2var_epi8(load(lower.data()), codes, load(lower.data() + 64));
  const __m512i sign_bits = _mm512_set1_epi8(static_cast<char>(0x80));
  const __m512i signed_byte = _mm512_ternarylogic_epi32(high_byte, codes, sign_bits, 0xF8);  // high | (codes & sign)
  const __m512i pairs_0 = _mm512_unpacklo_epi8(low_byte, signed_byte);
  const __m512i pairs_1 = _mm512_unpackhi_epi8(low_byte, signed_byte);
  const __m512i odd = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
  use(Index<0>(), Floats{_mm512_castsi512_ps(_mm512_slli_epi32(pairs_0, 16))});
  use(Index<1>(), Floats{_mm512_castsi512_ps(_mm512_and_si512(pairs_0, odd))});
  use(Index<2>(), Floats{_mm512_castsi512_ps(_mm512_slli_epi32(pairs_1, 16))});
  use(Index<3>(), Floats{_mm512_castsi512_ps(_mm512_and_si512(pairs_1, odd))});
}
#else
#define ONCHIP_HAVE_BYTE_TABLE 0
#endif

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONCHIP_CPU_SIMD_BYTE_TABLE_INL_H_
