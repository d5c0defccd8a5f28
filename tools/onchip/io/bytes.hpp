// One block of memory, aligned for any element type and for SIMD.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace onchip::cli {

constexpr std::size_t kAlignment = 64;

class Bytes {
 public:
  Bytes() = default;
  /// Contents undefined. Throws std::bad_alloc.
  explicit Bytes(std::size_t size)
      : memory_(static_cast<std::byte*>(::operator new (size, std::align_val_t{kAlignment}))), size_(size) {}

  std::byte* data() const { return memory_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() const { return {memory_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

}  // namespace onchip::cli
