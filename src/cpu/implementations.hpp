// What this folder offers to the dispatcher.
#pragma once

#include "core/implementation.hpp"

namespace onchip::cpu {

extern const Implementation kStandardForward;
extern const Implementation kStandardBackward;

}  // namespace onchip::cpu
