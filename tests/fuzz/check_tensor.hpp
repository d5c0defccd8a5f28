// What every tensor that a reader accepted must satisfy.
#pragma once

#include <cstdlib>

#include "onchip/io/file_tensor.hpp"

namespace onchip::fuzz {

inline void check(bool holds) {
  if (!holds) std::abort();
}

/// Its bytes lie within the file and are as many as its shape needs. All of them are read.
inline void check_tensor(const cli::FileTensor& tensor, std::span<const std::byte> file) {
  check(tensor.type != nullptr);
  check(cli::byte_count(tensor.shape, *tensor.type) == static_cast<std::int64_t>(tensor.bytes.size()));
  if (tensor.bytes.empty()) return;
  check(tensor.bytes.data() >= file.data());
  check(tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size());
  unsigned sum = 0;
  for (const std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
  [[maybe_unused]] static volatile unsigned sink;
  sink = sum;
}

}  // namespace onchip::fuzz
