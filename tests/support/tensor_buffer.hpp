// A tensor of the tests: memory that it owns, a view with any strides, and a guard on every byte outside the view.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "onchip/onchip.hpp"
#include "support/rng.hpp"

namespace onchip::test {

/// Every byte of memory that nobody has written yet: NaN in each floating-point type, −1 in i32.
inline constexpr std::byte kPoison{0xFF};

/// How a view lies in memory. Values count elements.
struct Strides {
  std::vector<std::int64_t> stride;
  std::int64_t first = 0;  ///< index 0 of the view, from the lowest element
  std::int64_t reach = 1;  ///< elements from the lowest to the highest, inclusive
};

Strides contiguous_strides(const std::vector<std::int64_t>& shape);
/// Outer dimensions in any order, gaps between rows (slices of a fused tensor) and, for inputs, negative and zero
/// strides. The last dimension stays contiguous unless `free_last`.
Strides draw_strides(Rng& rng, const std::vector<std::int64_t>& shape, bool input, bool free_last = false);

class TensorBuffer {
 public:
  /// Absent.
  TensorBuffer() = default;
  TensorBuffer(DType type, const std::vector<std::int64_t>& shape, const Strides& strides);
  /// Row-major.
  TensorBuffer(DType type, const std::vector<std::int64_t>& shape)
      : TensorBuffer(type, shape, contiguous_strides(shape)) {}

  Tensor view() const {
    Tensor view = view_;
    if (present()) view.data = const_cast<std::byte*>(bytes_.data()) + first_byte_;
    return view;
  }
  bool present() const { return view_.present(); }

  /// Every byte, guards included, becomes kPoison.
  void poison();
  /// Sets every element, in row-major order, to value().
  void fill(const std::function<double()>& value);
  /// Sets every element from row-major values.
  void assign(const std::vector<double>& values);
  /// Elements as row-major values.
  std::vector<double> values() const;

  /// Whether a byte that belongs to no element is not kPoison any more.
  bool guard_broken() const;
  /// All bytes, to see whether anything changed.
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  Tensor view_;  // without its address
  std::int64_t first_byte_ = 0;
  std::vector<std::byte> bytes_;
};

/// "[2, 5, 4, 64]" with strides where they are not row-major.
std::string describe(const Tensor& tensor);

}  // namespace onchip::test
