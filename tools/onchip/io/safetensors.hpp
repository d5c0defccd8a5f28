// The safetensors format: 8 bytes with the little-endian length of a JSON header, the header, then the data.
//   {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, …, "__metadata__": {"KEY": "VALUE"}}
// Offsets count from the end of the header. The reader believes nothing: every byte of the data belongs to exactly one
// tensor, and each tensor's bytes are as many as its shape and type need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onchip/io/file_tensor.hpp"
#include "onchip/io/output_file.hpp"

namespace onchip::cli {

/// The tensors of a file, in its order, as views into `file`. `path` is for messages.
std::vector<FileTensor> parse_safetensors(std::span<const std::byte> file, const std::string& path);

/// For read_file(): where the data begins, and the size of the file as its header has it.
std::size_t safetensors_payload(std::span<const std::byte> first_bytes);
std::optional<std::uint64_t> safetensors_size(std::span<const std::byte> beginning, const std::string& path);

/// Writes contiguous tensors.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
void write_safetensors(OutputFile& file, std::span<const NamedTensor> tensors);

}  // namespace onchip::cli
