// Runs a case on every implementation and holds the results against the reference.
#pragma once

#include <string>
#include <vector>

#include "support/case.hpp"

namespace onchip::test {

/// Both passes of a case on backends cpu and standard through the public interface, then on each implementation that
/// accepts the problem without being the one chosen. One line for each failure.
std::vector<std::string> check_case(Case& c);

/// One pass's results against the reference.
std::vector<std::string> compare_results(const Case& c, Pass pass);

}  // namespace onchip::test
