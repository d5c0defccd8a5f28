// The JSON header of a safetensors file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onchip/io/file_tensor.hpp"

namespace onchip::cli {

struct HeaderEntry {
  std::string name;
  const FileType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // not yet held against the file
};

/// Refuses a header by its first byte.
void check_header_begins(std::string_view text, const std::string& path);

/// The entries in the header's order; whatever is not exactly what the format says is refused. `path` is for messages.
std::vector<HeaderEntry> parse_safetensors_header(std::string_view text, const std::string& path);

}  // namespace onchip::cli
