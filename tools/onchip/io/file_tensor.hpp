// A tensor as a file describes it: nothing about it is right for attention yet, but its bytes are all there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onchip/onchip.hpp"

namespace onchip::cli {

/// An element type of the safetensors format.
struct FileType {
  const char* name;
  std::int64_t bytes;
  std::optional<DType> dtype;  // where the library has it
};

/// Null when the format has no such type.
const FileType* find_file_type(std::string_view name);
const FileType& file_type(DType dtype);

struct FileTensor {
  std::string name;
  const FileType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // at any alignment
};

/// Elements times `type.bytes`; nothing when that is 2^63 or more.
std::optional<std::int64_t> byte_count(const std::vector<std::int64_t>& shape, const FileType& type);
/// "[2, 64, 8]"
std::string shape_text(const std::vector<std::int64_t>& shape);
/// A name out of a file as messages show it: quoted, and cut when it is long.
std::string shown(std::string_view name);

}  // namespace onchip::cli
