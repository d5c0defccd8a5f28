// Attention of a few query rows to one chunk of keys. Compiled once for each SIMD target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/query_block.hpp"

namespace onchip::cpu {

/// The same rows of one or more neighbouring KV heads of a sequence, and a range of its keys.
struct DecodeTask {
  QueryBlock first;  // of the first head
  std::int64_t num_heads;
  KeyRange keys;

  std::int64_t rows() const { return first.rows; }
  QueryBlock block(std::int64_t head) const {
    QueryBlock block = first;
    block.kv_head += head;
    return block;
  }
};

/// What one chunk of keys contributes to the rows of a KV head: see softmax-inl.h for maximum and sum. The next head's
/// part is `rows` rows further.
template <typename T>
struct DecodePartial {
  T* row_max;  // [rows]
  T* row_sum;  // [rows]
  T* o;        // [rows][o_stride], not yet divided by the sum
  std::int64_t rows;
  std::int64_t o_stride;

  DecodePartial head(std::int64_t h) const {
    return {row_max + h * rows, row_sum + h * rows, o + h * rows * o_stride, rows, o_stride};
  }
};

/// Elements between rows of DecodePartial::o: Dv in whole vectors.
template <typename T>
std::int64_t decode_output_stride(const Problem& problem);

/// Scratch of one thread for tasks of at most `rows` rows, all heads together, and `chunk` keys.
template <typename T>
std::size_t decode_scratch_bytes(const Problem& problem, std::int64_t rows, std::int64_t chunk);

/// Computes the partial results of a task's heads.
template <typename T>
void decode_chunk(const Problem& problem, const DecodeTask& task, std::int64_t chunk, std::byte* scratch,
                  const DecodePartial<T>& partial);

}  // namespace onchip::cpu
