// A cache that grows step by step, and beside it the same in plain double loops.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "support/owned_tensor.hpp"

namespace onchip::test {

enum class CacheLayout { batched, transposed, packed, paged };
enum class CacheScale { none, tensor, head, batch_head, token };

struct DecodeOptions {
  DType type = DType::f32;
  DType cache_type = DType::f32;
  CacheScale scale = CacheScale::none;
  CacheLayout layout = CacheLayout::batched;
  bool packed_q = false;
  std::int64_t rotary = 0;  ///< R; 0: none
  bool interleaved = false;
  DType angle_type = DType::f32;
  bool causal = true;
  Backend backend = Backend::automatic;
  std::int64_t head_dim = 12, head_dim_v = 6;
};

std::string text(const DecodeOptions& options);

class DecodeRig {
 public:
  static constexpr std::int64_t kBatch = 3, kHeadsQ = 4, kHeadsKv = 2, kCapacity = 24, kPageSize = 4;

  /// lengths[b] keys of random values lie in the cache of sequence b.
  DecodeRig(const DecodeOptions& options, std::vector<std::int32_t> lengths, unsigned seed = 1);

  /// The next step, with new_tokens[b] random tokens for sequence b (all alike unless q is packed).
  void draw(const std::vector<std::int64_t>& new_tokens);
  /// The next step, whose tokens are tokens begin…end−1 of the last step of `other`.
  void take(const DecodeRig& other, std::int64_t begin, std::int64_t end);
  Decode problem() const;

  /// Checks what decode() wrote against double loops, then counts the new keys.
  void check();

  std::vector<std::int32_t> lengths() const;
  std::int64_t num_new(std::int64_t b) const { return new_tokens_[b]; }
  /// Element d of the output for token i of sequence b.
  double output(std::int64_t b, std::int64_t i, std::int64_t head, std::int64_t d) const;
  OwnedTensor& k() { return k_; }
  OwnedTensor& v() { return v_; }
  OwnedTensor& k_scale() { return k_scale_; }
  OwnedTensor& k_new() { return k_new_; }
  /// All of its memory, for copies.
  std::vector<OwnedTensor*> tensors();

 private:
  OwnedTensor step_tensor(std::int64_t heads, std::int64_t size, DType type) const;
  Tensor cache_view(const OwnedTensor& cache) const;
  OwnedTensor make_cache(std::int64_t size) const;
  OwnedTensor make_scale() const;
  void fill_pages();
  void fill_angles();

  std::int64_t row_of_key(std::int64_t b, std::int64_t j) const;  ///< its index in cache memory, without heads
  std::int64_t cache_index(std::int64_t b, std::int64_t j, std::int64_t head) const;
  std::int64_t token_index(std::int64_t b, std::int64_t i) const;
  std::int64_t scale_index(std::int64_t b, std::int64_t j, std::int64_t head) const;
  double cached(const OwnedTensor& cache, const OwnedTensor& scale, std::int64_t b, std::int64_t j, std::int64_t head,
                std::int64_t d) const;
  std::vector<double> row(const OwnedTensor& step, std::int64_t b, std::int64_t i, std::int64_t head) const;
  std::vector<double> turned(std::vector<double> row, std::int64_t position) const;
  void check_row(const OwnedTensor& cache, const OwnedTensor& scale, const std::vector<double>& want, std::int64_t b,
                 std::int64_t j, std::int64_t head) const;
  void check_output(std::int64_t b, std::int64_t i, std::int64_t head) const;

  DecodeOptions options_;
  std::mt19937 random_;
  std::vector<std::int64_t> new_tokens_;
  OwnedTensor seqused_, page_table_, cu_seqlens_k_, cu_seqlens_q_, cos_, sin_;
  OwnedTensor k_, v_, k_scale_, v_scale_;
  OwnedTensor q_, k_new_, v_new_, o_, lse_;
};

}  // namespace onchip::test
