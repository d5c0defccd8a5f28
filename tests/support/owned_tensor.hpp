// A tensor over memory of its own, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/number_format.hpp"
#include "onchip/onchip.hpp"

namespace onchip::test {

/// Row-major, poisoned with 0xFF bytes: NaN in every floating-point type.
struct OwnedTensor {
  OwnedTensor(DType dtype, std::initializer_list<std::int64_t> shape)
      : view(contiguous(static_cast<void*>(nullptr), dtype, shape)) {
    for (std::int64_t size : shape) count *= size;
    memory.assign(static_cast<std::size_t>(count) * size_of(dtype) + 1, std::byte{0xFF});
    view.data = memory.data();
  }
  OwnedTensor(const OwnedTensor& other) { *this = other; }
  OwnedTensor& operator=(const OwnedTensor& other) {
    count = other.count;
    memory = other.memory;
    view = other.view;
    view.data = memory.data();
    return *this;
  }

  double get(std::int64_t index) const { return load_element(view.dtype, memory.data(), index); }
  void set(std::int64_t index, double value) { store_element(view.dtype, memory.data(), index, value); }
  std::int32_t* int32() { return static_cast<std::int32_t*>(view.data); }
  std::int32_t get_int32(std::int64_t index) const { return static_cast<const std::int32_t*>(view.data)[index]; }

  std::int64_t count = 1;  ///< elements
  std::vector<std::byte> memory;
  Tensor view;
};

}  // namespace onchip::test
