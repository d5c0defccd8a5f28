// Element types as kernels know them.
#pragma once

namespace onchip::cuda {

enum class Element { none, f32, bf16, f16, e4m3, e5m2, i8 };

constexpr int element_bytes(Element element) {
  switch (element) {
    case Element::f32:
      return 4;
    case Element::bf16:
    case Element::f16:
      return 2;
    case Element::e4m3:
    case Element::e5m2:
    case Element::i8:
      return 1;
    case Element::none:
      break;
  }
  return 0;
}

/// The largest value of a type that holds quantised numbers.
constexpr float largest_value(Element element) {
  return element == Element::i8 ? 127.0f : element == Element::e4m3 ? 448.0f : 57344.0f;
}

}  // namespace onchip::cuda
