// What a planned call is expected to do on a machine.
#pragma once

#include "core/problem.hpp"
#include "model/machine.hpp"

namespace onchip::model {

/// Main-memory bytes count every result as written, also what the cache still holds when the call returns.
Prediction predict(const Problem& problem, const Plan& plan, const Machine& machine);
/// The same on this machine's CPU.
Prediction predict(const Problem& problem, const Plan& plan, const CacheSizes& caches);

}  // namespace onchip::model
