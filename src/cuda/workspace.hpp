// The workspace of a call on a GPU whose caller gave none.
#pragma once

#include <cstddef>
#include <span>

#include "core/status.hpp"

namespace onchip::cuda {

/// Memory of a device, allocated and freed in the order of a stream: neither waits for anything.
class StreamWorkspace {
 public:
  StreamWorkspace() = default;
  StreamWorkspace(const StreamWorkspace&) = delete;
  StreamWorkspace& operator=(const StreamWorkspace&) = delete;
  ~StreamWorkspace();

  Status allocate(int device, void* stream, std::size_t bytes);
  std::span<std::byte> bytes() const { return {memory_, size_}; }

 private:
  int device_ = -1;
  void* stream_ = nullptr;
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace onchip::cuda
