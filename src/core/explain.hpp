// A plan for people and for programs.
#pragma once

#include <string>

#include "core/problem.hpp"

namespace onchip {

std::string to_text(const Plan& plan);
std::string to_json(const Plan& plan);

}  // namespace onchip
