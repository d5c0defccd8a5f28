// Copies of host memory in device memory, and views of it moved there.
#pragma once

#include <cstddef>
#include <vector>

#include "onchip/gpu.hpp"

namespace onchip::test {

class DeviceImage {
 public:
  void add(const void* host, std::size_t bytes);
  /// The same view of the copy that holds its first element; null data where none does: no elements.
  Tensor moved(Tensor view) const;
  void move(std::initializer_list<Tensor*> views) const {
    for (Tensor* view : views) *view = moved(*view);
  }
  /// Every tensor of a problem's forward pass.
  void move(Attention& problem) const;
  /// Copies one memory back, or all of them.
  void read(void* host) const;
  void read_all() const;

 private:
  struct Copy {
    std::byte* host;
    std::size_t bytes;
    DeviceMemory memory;
  };
  std::vector<Copy> copies_;
};

}  // namespace onchip::test
