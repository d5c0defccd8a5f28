// --machine: a machine of the traffic model by name, the present CPU, or a description in a file.
#pragma once

#include <string>

#include "model/machine.hpp"

namespace onchip::cli {

inline constexpr const char* kHostMachine = "host";

/// The present CPU is measured, with the threads this process may use. Refuses names that are neither known nor a file,
/// and files that describe no machine.
model::Machine machine_from_option(const std::string& value);

}  // namespace onchip::cli
