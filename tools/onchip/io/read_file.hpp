// A whole file in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "onchip/io/bytes.hpp"

namespace onchip::cli {

/// How far into its file the part that should be aligned begins, judged by the file's first bytes (up to 8).
using PayloadOffset = std::size_t (*)(std::span<const std::byte> first_bytes);

/// Judges a file by how it begins: refuses what no file of the format begins with, and returns the size of the whole
/// file as soon as the beginning says it.
using WholeSize = std::optional<std::uint64_t> (*)(std::span<const std::byte> beginning, const std::string& path);

struct FileBytes {
  Bytes storage;
  std::span<const std::byte> bytes;  // the file, placed so that its payload is aligned
};

/// Refuses what cannot be opened or read, devices, and what `whole_size` refuses, before reading on. Of pipes no more
/// is read than the size that the file says, and a byte to tell that there is more.
FileBytes read_file(const std::string& path, PayloadOffset payload_offset, WholeSize whole_size);

}  // namespace onchip::cli
