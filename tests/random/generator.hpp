// Draws any legal combination of features from a seed.
#pragma once

#include <cstdint>

#include "support/case.hpp"

namespace onchip::test {

/// The case of a seed: same seed, same case, on every machine.
Case draw_case(std::uint64_t seed);

}  // namespace onchip::test
