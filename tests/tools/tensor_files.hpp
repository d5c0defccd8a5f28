// Tensor files made byte by byte, right or wrong as a test wants them.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace onchip::test {

struct FileContent {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

template <typename Element>
FileContent content(const std::string& dtype, std::vector<std::int64_t> shape, const std::vector<Element>& values) {
  std::string bytes(values.size() * sizeof(Element), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return {dtype, std::move(shape), std::move(bytes)};
}

/// Numbers between −1 and 1, the same every time.
FileContent floats(std::vector<std::int64_t> shape);
FileContent ints(const std::vector<std::int32_t>& values);
FileContent zeros(const std::string& dtype, std::size_t element_bytes, std::vector<std::int64_t> shape);

using Tensors = std::map<std::string, FileContent>;

/// q, k and v of [1, 2, 2, 2], f32.
Tensors small_tensors();

/// A file with this header, its true length before it, and these bytes after it.
std::string safetensors_file(const std::string& header, const std::string& data);
std::string safetensors_file(const Tensors& tensors);

/// "{'descr': …" padded as numpy.save does; `version` 1 to 3.
std::string npy_file(const std::string& header, const std::string& data, int version = 1);
std::string npy_file(const std::string& descr, const FileContent& tensor);

std::span<const std::byte> bytes_of(const std::string& file);

}  // namespace onchip::test
