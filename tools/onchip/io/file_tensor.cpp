#include "onchip/io/file_tensor.hpp"

#include <algorithm>

namespace onchip::cli {
namespace {

constexpr FileType kFileTypes[] = {
    {"F64", 8, DType::f64},      {"F32", 4, DType::f32},      {"BF16", 2, DType::bf16}, {"F16", 2, DType::f16},
    {"F8_E4M3", 1, DType::e4m3}, {"F8_E5M2", 1, DType::e5m2}, {"I8", 1, DType::i8},     {"I32", 4, DType::i32},
    {"BOOL", 1, DType::boolean}, {"I64", 8, std::nullopt},    {"I16", 2, std::nullopt}, {"U8", 1, std::nullopt},
    {"U16", 2, std::nullopt},    {"U32", 4, std::nullopt},    {"U64", 8, std::nullopt},
};

constexpr std::size_t kLongestShown = 64;

}  // namespace

const FileType* find_file_type(std::string_view name) {
  for (const FileType& type : kFileTypes)
    if (name == type.name) return &type;
  return nullptr;
}

const FileType& file_type(DType dtype) {
  for (const FileType& type : kFileTypes)
    if (type.dtype == dtype) return type;
  return kFileTypes[0];
}

std::optional<std::int64_t> byte_count(const std::vector<std::int64_t>& shape, const FileType& type) {
  std::int64_t count = type.bytes;
  bool overflow = false;
  for (const std::int64_t size : shape) {
    if (size == 0) return 0;
    overflow = overflow || __builtin_mul_overflow(count, size, &count);
  }
  if (overflow) return std::nullopt;
  return count;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d ? ", " : "") + std::to_string(shape[d]);
  return text + "]";
}

std::string shown(std::string_view name) {
  std::size_t length = std::min(name.size(), kLongestShown);
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(name[at]) & 0xC0) == 0x80; };
  while (length < name.size() && length > 0 && continues(length)) --length;  // not within a character of UTF-8
  std::string text = "'" + std::string(name.substr(0, length)) + (length < name.size() ? "…'" : "'");
  std::replace(text.begin(), text.end(), '\0', '?');  // which would end the message
  return text;
}

}  // namespace onchip::cli
