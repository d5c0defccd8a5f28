// A whole file in memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "onchip/io/bytes.hpp"

namespace onchip::cli {

/// How far into its file the part that should be aligned begins, judged by the file's first bytes (up to 8).
using PayloadOffset = std::size_t (*)(std::span<const std::byte> first_bytes);

struct FileBytes {
  Bytes storage;
  std::span<const std::byte> bytes;  // the file, placed so that its payload is aligned
};

/// Refuses what cannot be opened or read. Files that cannot be rewound, such as pipes, are read all the same.
FileBytes read_file(const std::string& path, PayloadOffset payload_offset);

}  // namespace onchip::cli
