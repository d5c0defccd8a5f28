#include "reference/formats.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace onchip::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Sign, exponent, mantissa: numbers are mantissa·2^(exponent − mantissa_bits).
struct Format {
  int mantissa_bits;
  int min_exponent;
  double largest;
  int bits;
  bool saturates;
};

Format format_of(DType type) {
  switch (type) {
    case DType::f64:
      return {52, -1022, std::numeric_limits<double>::max(), 64, false};
    case DType::bf16:
      return {7, -126, 0x1.FEp127, 16, false};
    case DType::f16:
      return {10, -14, 65504.0, 16, false};
    case DType::e4m3:
      return {3, -6, 448.0, 8, true};
    case DType::e5m2:
      return {2, -14, 57344.0, 8, true};
    default:
      return {23, -126, std::numeric_limits<float>::max(), 32, false};
  }
}

double quantum(const Format& format, double value) {
  const int exponent = value == 0 ? format.min_exponent : std::max(std::ilogb(value), format.min_exponent);
  return std::ldexp(1.0, exponent - format.mantissa_bits);
}

double decode_bits(DType type, std::uint32_t code) {
  const Format format = format_of(type);
  const std::uint32_t sign_bit = 1u << (format.bits - 1);
  const double sign = code & sign_bit ? -1.0 : 1.0;
  const std::uint32_t magnitude = code & (sign_bit - 1);
  const int field = static_cast<int>(magnitude >> format.mantissa_bits);
  const std::uint32_t fraction = magnitude & ((1u << format.mantissa_bits) - 1);
  const int last_field = static_cast<int>((sign_bit - 1) >> format.mantissa_bits);
  if (type == DType::e4m3) {
    if (magnitude == 0x7F) return kNan;
  } else if (field == last_field) {
    return fraction ? kNan : sign * kInfinity;
  }
  if (field == 0) return sign * std::ldexp(fraction, format.min_exponent - format.mantissa_bits);
  return sign *
         std::ldexp(fraction + (1u << format.mantissa_bits), format.min_exponent + field - 1 - format.mantissa_bits);
}

const std::vector<double>& table(DType type) {
  const auto build = [](DType of) {
    std::vector<double> values(std::size_t{1} << format_of(of).bits);
    for (std::size_t code = 0; code < values.size(); ++code)
      values[code] = decode_bits(of, static_cast<std::uint32_t>(code));
    return values;
  };
  static const std::vector<double> bf16 = build(DType::bf16), f16 = build(DType::f16), e4m3 = build(DType::e4m3),
                                   e5m2 = build(DType::e5m2);
  return type == DType::bf16 ? bf16 : type == DType::f16 ? f16 : type == DType::e4m3 ? e4m3 : e5m2;
}

std::uint32_t encode_bits(DType type, double value) {
  const Format format = format_of(type);
  const std::uint32_t sign = std::signbit(value) ? 1u << (format.bits - 1) : 0;
  if (std::isnan(value)) return sign | (type == DType::bf16 ? 0x7FC0u : type == DType::f16 ? 0x7E00u : 0x7Fu);
  const double rounded = std::abs(round_to(type, value));
  if (std::isinf(rounded)) return sign | (type == DType::bf16 ? 0x7F80u : 0x7C00u);
  if (rounded == 0) return sign;
  const int exponent = std::max(std::ilogb(rounded), format.min_exponent);
  const auto mantissa = static_cast<std::uint32_t>(std::ldexp(rounded, format.mantissa_bits - exponent));
  return sign | ((static_cast<std::uint32_t>(exponent - format.min_exponent) << format.mantissa_bits) + mantissa);
}

}  // namespace

double largest(DType type) { return type == DType::i8 ? 127.0 : format_of(type).largest; }

double ulp(DType type, double value) { return quantum(format_of(type), value); }

double round_to(DType type, double value) {
  if (type == DType::f64) return value;
  if (type == DType::f32) return static_cast<float>(value);
  if (type == DType::i8) return std::isnan(value) ? 0 : std::min(127.0, std::max(-128.0, std::nearbyint(value)));
  const Format format = format_of(type);
  if (std::isnan(value)) return value;
  const double limit = format.saturates ? format.largest : kInfinity;
  if (std::isinf(value)) return std::copysign(limit, value);
  const double unit = quantum(format, value);
  const double rounded = std::nearbyint(value / unit) * unit;
  return std::abs(rounded) > format.largest ? std::copysign(limit, value) : rounded;
}

double decode(DType type, const void* data, std::int64_t index) {
  switch (type) {
    case DType::f64:
      return static_cast<const double*>(data)[index];
    case DType::f32:
      return static_cast<const float*>(data)[index];
    case DType::i32:
      return static_cast<const std::int32_t*>(data)[index];
    case DType::i8:
      return static_cast<const std::int8_t*>(data)[index];
    case DType::boolean:
      return static_cast<const unsigned char*>(data)[index] != 0;
    case DType::bf16:
    case DType::f16:
      return table(type)[static_cast<const std::uint16_t*>(data)[index]];
    default:
      return table(type)[static_cast<const std::uint8_t*>(data)[index]];
  }
}

void encode(DType type, void* data, std::int64_t index, double value) {
  switch (type) {
    case DType::f64:
      static_cast<double*>(data)[index] = value;
      break;
    case DType::f32:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      break;
    case DType::i32:
      static_cast<std::int32_t*>(data)[index] = static_cast<std::int32_t>(value);
      break;
    case DType::i8:
      static_cast<std::int8_t*>(data)[index] = static_cast<std::int8_t>(round_to(type, value));
      break;
    case DType::boolean:
      static_cast<unsigned char*>(data)[index] = value != 0;
      break;
    case DType::bf16:
    case DType::f16:
      static_cast<std::uint16_t*>(data)[index] = static_cast<std::uint16_t>(encode_bits(type, value));
      break;
    default:
      static_cast<std::uint8_t*>(data)[index] = static_cast<std::uint8_t>(encode_bits(type, value));
  }
}

}  // namespace onchip::test
