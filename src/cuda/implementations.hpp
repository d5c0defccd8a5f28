// What this folder offers to the dispatcher.
#pragma once

#include "core/implementation.hpp"
#include "model/machine.hpp"

namespace onchip::cuda {

extern const Implementation kFwdSm90;
extern const Implementation kPortableForward;

/// The GPU that holds a problem's tensors, as the traffic model sees it.
const model::Machine& machine_of(const Problem& problem);

}  // namespace onchip::cuda
