// What a planned call is expected to do.
#pragma once

#include "core/problem.hpp"

namespace onchip::model {

Prediction predict(const Problem& problem, const Plan& plan);

}  // namespace onchip::model
