// Calls the library the way every test does: workspace of exactly the planned size, poisoned and guarded.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "core/implementation.hpp"
#include "support/case.hpp"

namespace onchip::test {

/// What one call did; `error` is empty when it succeeded and kept to its memory.
struct Outcome {
  Plan plan;
  std::string error;
};

/// Through onchip::forward() or onchip::backward(), with args.backend.
Outcome run_public(const Attention& args, Pass pass);

/// `implementation` itself, whether or not the dispatcher would choose it.
Outcome run_implementation(const Implementation& implementation, const Attention& args, Pass pass);

/// Poisons the results of a pass, runs it, and checks that no input and no byte outside the results changed.
Outcome run_guarded(Case& c, Pass pass, const std::function<Outcome(const Attention&, Pass)>& call);

/// Whether the library has any implementation of this backend and pass.
bool has_backend(Backend backend, Pass pass);
const char* backend_name(Backend backend);

}  // namespace onchip::test

namespace onchip {

/// How GoogleTest shows a backend in the names of tests.
inline void PrintTo(Backend backend, std::ostream* out) { *out << test::backend_name(backend); }
inline void PrintTo(Pass pass, std::ostream* out) { *out << (pass == Pass::forward ? "forward" : "backward"); }

}  // namespace onchip

/// Skips the running test, by name, when a backend has no implementation of a pass.
#define ONCHIP_SKIP_WITHOUT(backend, pass)                                                             \
  do {                                                                                                 \
    if (!::onchip::test::has_backend(backend, pass))                                                   \
      GTEST_SKIP() << "backend " << ::onchip::test::backend_name(backend) << " has no implementation"; \
  } while (false)
