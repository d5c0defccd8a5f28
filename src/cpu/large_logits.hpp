// Where logits are too large for f32 arithmetic. Rounding a logit of size N changes its probability by up to 2^-24·N of
// itself, while f32 results are held to 2e-5 and those of 16 bits to some 2^-12: heads with larger logits are computed
// in double.
//
// That is decided for all rows of one sequence and KV head together, from nothing but their own inputs: it does not
// depend on how rows are cut into tasks, on threads, or on other sequences.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/problem.hpp"
#include "core/workspace.hpp"

namespace onchip::cpu {

/// Whether logits of about this lse are too large.
bool too_large_for_float(const Problem& problem, double lse);

/// Whether an lse that the caller has is that of these keys, computed in double, as far as f32 can tell. One of a merge
/// over more keys, which gradients of some of them start from, is larger.
inline bool is_own_lse(double given, double computed) {
  constexpr double kRelative = 0x1p-22, kAbsolute = 1e-5;
  return !(given - computed > kAbsolute + kRelative * (computed < 0 ? -computed : computed));
}

/// A mark for each sequence and KV head. Any thread may set one. Problems in f64 need none: they have no marks.
class LargeLogits {
 public:
  LargeLogits(const Problem& problem, WorkspaceCursor& cursor)
      : problem_(problem),
        applies_(problem.dtype() != DType::f64),
        marks_(cursor.take<std::uint8_t>(count())),
        norms_(cursor.take<std::uint32_t>(kNorms * count())) {}

  /// Clears all marks, then marks heads of f32 inputs for the norms of their rows. `scratch` has
  /// scratch_bytes() bytes.
  void start(int threads, std::byte* scratch) const;
  static std::size_t scratch_bytes(const Problem& problem);

  void set(std::int64_t batch, std::int64_t kv_head) const {
    std::atomic_ref<std::uint8_t>(marks_[index(batch, kv_head)]).store(1, std::memory_order_relaxed);
  }
  /// Marks the head of a row with this lse where that is too large.
  void see_lse(std::int64_t batch, std::int64_t kv_head, double lse) const;
  bool at(std::int64_t batch, std::int64_t kv_head) const { return applies_ && marks_[index(batch, kv_head)] != 0; }
  bool any() const;
  bool all() const;

 private:
  enum Norm { kQ, kK, kDout, kV, kNorms };

  void find_large_norms(int threads, float* rows) const;
  bool has_large_norms(const std::uint32_t* squares) const;
  std::size_t count() const { return applies_ ? static_cast<std::size_t>(problem_.batch * problem_.num_heads_kv) : 0; }
  std::int64_t index(std::int64_t batch, std::int64_t kv_head) const { return batch * problem_.num_heads_kv + kv_head; }

  const Problem& problem_;
  bool applies_;
  std::uint8_t* marks_;   // [B, Hk]
  std::uint32_t* norms_;  // [B, Hk, kNorms]: the bits of largest squared norms, which order as integers
};

/// The heads that one run over a problem computes: those that are marked, or the others.
struct HeadSelection {
  const LargeLogits& large;
  bool marked;

  bool operator()(std::int64_t batch, std::int64_t kv_head) const { return large.at(batch, kv_head) == marked; }
};

}  // namespace onchip::cpu
