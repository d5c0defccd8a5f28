// What this folder offers to the dispatcher.
#pragma once

#include "core/implementation.hpp"

namespace onchip::cpu {

extern const Implementation kBackward;
extern const Implementation kStandardForward;
extern const Implementation kStandardBackward;
extern const Implementation kForward;
extern const Implementation kDecode;

}  // namespace onchip::cpu
