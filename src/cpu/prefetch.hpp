// Asks for memory ahead of its use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onchip::cpu {

/// How far a loop that does little with each row asks ahead.
inline constexpr std::int64_t kRowsAhead = 4;

/// The `bytes` from `address` on, a line at a time. A core drops prefetches beyond the few dozen lines that it can have
/// under way. Always inlined, and with an effect in the compiler's eyes: GCC 12 takes a function that only prefetches
/// for one without effects and removes the call.
[[gnu::always_inline]] inline void prefetch_bytes(const std::byte* address, std::int64_t bytes) {
  constexpr std::int64_t kLineBytes = 64;
  for (std::int64_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(address + at);
  asm volatile("" ::"r"(address));
}

/// Rows to work with, and as many pieces of a row's size to ask for meanwhile, or null. Handed on by reference: copying
/// it through a vector register waits for the stores of its fields.
template <typename Element>
struct RowRun {
  const Element* first;
  std::int64_t stride;  // elements
  const Element* ahead = nullptr;
  std::int64_t ahead_stride = 0;

  /// Asks for elements [begin, begin + count) of a piece.
  [[gnu::always_inline]] void prefetch(std::int64_t piece, std::int64_t begin, std::int64_t count) const {
    if (ahead == nullptr) return;
    const auto* address = reinterpret_cast<const std::byte*>(ahead + piece * ahead_stride + begin);
    prefetch_bytes(address, count * static_cast<std::int64_t>(sizeof(Element)));
  }
};

}  // namespace onchip::cpu
