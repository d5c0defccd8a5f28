// Scratch memory: one aligned block for a call, and a cursor that hands out aligned parts of it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "core/status.hpp"

namespace onchip {

constexpr std::size_t kCacheLine = 64;

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Bytes that WorkspaceCursor::take<T>(count) uses up.
template <typename T>
constexpr std::size_t aligned_bytes(std::size_t count) {
  return round_up(count * sizeof(T), kCacheLine);
}

/// The block that forward() and backward() allocate when the caller gives none.
class Workspace {
 public:
  Status allocate(std::size_t size) {
    if (size == 0) return {};
    size = round_up(size, kCacheLine);
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kCacheLine, size)));
    if (!memory_) return {StatusCode::out_of_memory, fmt::format("workspace: {} bytes could not be allocated", size)};
    size_ = size;
    return {};
  }
  std::span<std::byte> bytes() const { return {memory_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

/// Hands out consecutive parts of a workspace, each on its own cache lines. One without memory hands out null and
/// counts: a layout is written once and serves both for sizing and for running.
class WorkspaceCursor {
 public:
  WorkspaceCursor() = default;
  explicit WorkspaceCursor(std::span<std::byte> bytes) : base_(bytes.data()) {}

  template <typename T>
  T* take(std::size_t count) {
    auto* part = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += aligned_bytes<T>(count);
    return part;
  }
  std::size_t used_bytes() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace onchip
