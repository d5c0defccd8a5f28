#include "tools/tensor_files.hpp"

namespace onchip::test {
namespace {

std::size_t count(const std::vector<std::int64_t>& shape) {
  std::size_t n = 1;
  for (const std::int64_t size : shape) n *= static_cast<std::size_t>(size);
  return n;
}

std::string joined(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return text;
}

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

}  // namespace

FileContent floats(std::vector<std::int64_t> shape) {
  std::vector<float> values(count(shape));
  std::uint32_t state = 12345;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return content("F32", std::move(shape), values);
}

FileContent ints(const std::vector<std::int32_t>& values) {
  return content("I32", {static_cast<std::int64_t>(values.size())}, values);
}

FileContent zeros(const std::string& dtype, std::size_t element_bytes, std::vector<std::int64_t> shape) {
  std::string bytes(count(shape) * element_bytes, '\0');
  return {dtype, std::move(shape), std::move(bytes)};
}

Tensors small_tensors() {
  return {{"q", floats({1, 2, 2, 2})}, {"k", floats({1, 2, 2, 2})}, {"v", floats({1, 2, 2, 2})}};
}

std::string safetensors_file(const std::string& header, const std::string& data) {
  return little_endian(header.size(), 8) + header + data;
}

std::string safetensors_file(const Tensors& tensors) {
  std::string header = "{";
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    if (header.size() > 1) header += ", ";
    header += "\"" + name + "\": {\"dtype\": \"" + tensor.dtype + "\", \"shape\": [" + joined(tensor.shape) +
              "], \"data_offsets\": [" + std::to_string(data.size()) + ", " +
              std::to_string(data.size() + tensor.bytes.size()) + "]}";
    data += tensor.bytes;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  return safetensors_file(header, data);
}

std::string npy_file(const std::string& header, const std::string& data, int version) {
  const int length_bytes = version == 1 ? 2 : 4;
  std::string padded = header;
  while ((8 + static_cast<std::size_t>(length_bytes) + padded.size() + 1) % 64 != 0) padded += ' ';
  padded += '\n';
  return std::string("\x93NUMPY") + static_cast<char>(version) + '\0' + little_endian(padded.size(), length_bytes) +
         padded + data;
}

std::string npy_file(const std::string& descr, const FileContent& tensor) {
  std::string shape = joined(tensor.shape);
  if (tensor.shape.size() == 1) shape += ",";
  return npy_file("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }", tensor.bytes);
}

std::span<const std::byte> bytes_of(const std::string& file) { return std::as_bytes(std::span(file)); }

}  // namespace onchip::test
