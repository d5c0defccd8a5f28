// What this folder offers to the dispatcher.
#pragma once

#include "core/implementation.hpp"

namespace onchip::cuda {

extern const Implementation kPortableForward;

}  // namespace onchip::cuda
