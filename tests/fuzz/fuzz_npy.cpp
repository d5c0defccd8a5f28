// Any bytes as a .npy file.
#include "fuzz/check_tensor.hpp"
#include "onchip/input_error.hpp"
#include "onchip/io/npy.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onchip;
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  try {
    fuzz::check_tensor(cli::parse_npy(file, "q", "FILE"), file);
  } catch (const cli::InputError&) {
  }
  return 0;
}
