// What a planned call is expected to do on the present machine.
#pragma once

#include "core/problem.hpp"
#include "model/cache_sizes.hpp"

namespace onchip::model {

/// Main-memory bytes count every result as written, also what the cache still holds when the call returns.
Prediction predict(const Problem& problem, const Plan& plan, const CacheSizes& caches);

}  // namespace onchip::model
