#include "onchip/machine_option.hpp"

#include <filesystem>

#include "cpu/host.hpp"
#include "cpu/measure.hpp"
#include "model/machine_json.hpp"
#include "onchip/input_error.hpp"
#include "onchip/io/read_file.hpp"

namespace onchip::cli {
namespace {

constexpr std::size_t kLargestDescription = std::size_t{1} << 20;

/// For read_file(): JSON does not say how long it is.
std::optional<std::uint64_t> limit_size(std::span<const std::byte> beginning, const std::string& path) {
  if (beginning.size() > kLargestDescription)
    refuse("{}: expected the description of a machine, in at most {} bytes", path, kLargestDescription);
  return std::nullopt;
}

}  // namespace

model::Machine machine_from_option(const std::string& value) {
  if (value == kHostMachine) {
    const int threads = cpu::core_count().usable;
    return cpu::host_machine(threads, cpu::measure_peaks(threads));
  }
  if (const model::Machine* known = model::find_machine(value)) return *known;
  if (!std::filesystem::exists(value)) {
    std::string names;
    for (const model::Machine& machine : model::known_machines()) names += machine.name + ", ";
    refuse("--machine: '{}', expected {}{} or a JSON file", value, names, kHostMachine);
  }
  const FileBytes file = read_file(
      value, [](std::span<const std::byte>) { return std::size_t{0}; }, limit_size);
  const std::string text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  model::Machine machine;
  const Status status = model::machine_from_json(text, machine);
  if (!status.ok()) refuse("{}: {}", value, status.message());
  return machine;
}

}  // namespace onchip::cli
