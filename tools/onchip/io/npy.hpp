// NumPy's .npy format, versions 1 to 3: a magic string, a header that is a Python dictionary, then one array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "onchip/io/file_tensor.hpp"

namespace onchip::cli {

/// The array of a file as a tensor named `name`, a view into `file`. `path` is for messages.
FileTensor parse_npy(std::span<const std::byte> file, const std::string& name, const std::string& path);

/// For read_file(): the data of a .npy file begins at a multiple of 64 bytes, and the header says how large it is.
std::size_t npy_payload(std::span<const std::byte> first_bytes);
std::optional<std::uint64_t> npy_size(std::span<const std::byte> beginning, const std::string& path);

}  // namespace onchip::cli
