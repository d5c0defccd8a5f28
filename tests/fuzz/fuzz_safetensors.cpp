// Any bytes as a safetensors file: accepted tensors tile the data, everything else is refused by InputError.
#include "fuzz/check_tensor.hpp"
#include "onchip/input_error.hpp"
#include "onchip/io/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onchip;
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  try {
    const auto tensors = cli::parse_safetensors(file, "FILE");
    std::size_t total = 0;
    for (const cli::FileTensor& tensor : tensors) {
      fuzz::check_tensor(tensor, file);
      total += tensor.bytes.size();
    }
    fuzz::check(total == file.size() - cli::safetensors_payload(file.first(8)));
  } catch (const cli::InputError&) {
  }
  return 0;
}
