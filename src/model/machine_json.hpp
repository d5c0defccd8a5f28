// Machine descriptions as JSON (docs/traffic.md has the fields and an example).
#pragma once

#include <string>

#include "core/status.hpp"
#include "model/machine.hpp"

namespace onchip::model {

/// Reads one machine. Every fault names the field, what it holds and what was expected.
Status machine_from_json(const std::string& text, Machine& machine);
std::string machine_to_json(const Machine& machine);

}  // namespace onchip::model
