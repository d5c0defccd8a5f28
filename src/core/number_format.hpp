// Element types and their conversion to and from double: one value at a time, portable, usable in constant expressions.
// Bulk conversion of rows is src/cpu/simd/convert-inl.h; a test holds the two against each other. How the types round
// is said in shared/number_format.hpp.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "onchip/onchip.hpp"
#include "shared/number_format.hpp"

namespace onchip {

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};
struct Float8E4M3 {
  std::uint8_t bits;
};
struct Float8E5M2 {
  std::uint8_t bits;
};

constexpr float to_float(BFloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }
constexpr float to_float(Float16 x) { return decode(kFloat16Layout, x.bits); }
constexpr float to_float(Float8E4M3 x) { return decode(kFloat8E4M3Layout, x.bits); }
constexpr float to_float(Float8E5M2 x) { return decode(kFloat8E5M2Layout, x.bits); }
constexpr float to_float(float x) { return x; }
constexpr float to_float(double x) { return static_cast<float>(x); }
constexpr float to_float(std::int8_t x) { return static_cast<float>(x); }

constexpr double to_double(double x) { return x; }
template <typename Element>
constexpr double to_double(Element x) {
  return static_cast<double>(to_float(x));
}

/// `value` rounded to Element.
template <typename Element>
constexpr Element from_double(double value) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    return {static_cast<std::uint16_t>(encode(kBFloat16Layout, value))};
  } else if constexpr (std::is_same_v<Element, Float16>) {
    return {static_cast<std::uint16_t>(encode(kFloat16Layout, value))};
  } else if constexpr (std::is_same_v<Element, Float8E4M3>) {
    return {static_cast<std::uint8_t>(encode(kFloat8E4M3Layout, value))};
  } else if constexpr (std::is_same_v<Element, Float8E5M2>) {
    return {static_cast<std::uint8_t>(encode(kFloat8E5M2Layout, value))};
  } else if constexpr (std::is_same_v<Element, std::int8_t>) {
    return encode_i8(value);
  } else {
    return static_cast<Element>(value);
  }
}

template <typename Element>
struct ElementTag {
  using type = Element;
};

/// Calls visitor(ElementTag<Element>{}) with the C++ type of `dtype`. i32 and boolean hold no numbers to compute with.
template <typename Visitor>
constexpr decltype(auto) visit_element(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::f64:
      return visitor(ElementTag<double>{});
    case DType::bf16:
      return visitor(ElementTag<BFloat16>{});
    case DType::f16:
      return visitor(ElementTag<Float16>{});
    case DType::e4m3:
      return visitor(ElementTag<Float8E4M3>{});
    case DType::e5m2:
      return visitor(ElementTag<Float8E5M2>{});
    case DType::i8:
      return visitor(ElementTag<std::int8_t>{});
    case DType::f32:
    case DType::i32:
    case DType::boolean:
      break;
  }
  return visitor(ElementTag<float>{});
}

/// Element `index` of an array of `dtype`.
inline double load_element(DType dtype, const void* data, std::int64_t index) {
  return visit_element(
      dtype, [&](auto tag) { return to_double(static_cast<const typename decltype(tag)::type*>(data)[index]); });
}

inline void store_element(DType dtype, void* data, std::int64_t index, double value) {
  visit_element(dtype, [&](auto tag) {
    using Element = typename decltype(tag)::type;
    static_cast<Element*>(data)[index] = from_double<Element>(value);
  });
}

}  // namespace onchip
