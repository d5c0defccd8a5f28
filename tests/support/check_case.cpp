#include "support/check_case.hpp"

#include <set>

#include "core/implementation.hpp"
#include "reference/attention.hpp"
#include "support/compare.hpp"
#include "support/run.hpp"

namespace onchip::test {
namespace {

struct Expected {
  Results exact, standard, magnitude;
  Results unrounded;  // standard attention in 16 bits with P and dS in f32
};

Expected expect(const Case& c) {
  Expected expected;
  const Attention args = c.gradients() ? c.backward_args() : c.inputs();
  expected.exact = exact_attention(args, c.gradients(), &expected.magnitude);
  expected.standard = standard_attention(args, c.gradients());
  const bool narrow = args.q.dtype == DType::bf16 || args.q.dtype == DType::f16;
  expected.unrounded = narrow && c.gradients() ? standard_attention(args, true, false) : expected.standard;
  return expected;
}

bool quantised(const Case& c) {
  const DType type = c.k.view().dtype;
  return type == DType::i8 || type == DType::e4m3 || type == DType::e5m2;
}

std::vector<std::string> compare_with(const Case& c, Pass pass, const Expected& expected) {
  std::vector<std::string> failures;
  const auto add = [&](const char* result, const TensorBuffer& got, std::vector<double> Results::*values) {
    if (!got.present()) return;
    const Expectation wanted{c.q.view().dtype,          c.options.backend == Backend::cuda, expected.exact.*values,
                             expected.standard.*values, expected.unrounded.*values,         expected.magnitude.*values};
    std::string failure = compare(result, got, wanted);
    if (failure.empty() && quantised(c) && size_of(got.view().dtype) == 2) failure = compare_rmse(result, got, wanted);
    if (!failure.empty()) failures.push_back(failure);
  };
  if (pass == Pass::forward) {
    add("o", c.o, &Results::o);
    add("lse", c.lse, &Results::lse);
  } else {
    add("dq", c.dq, &Results::dq);
    add("dk", c.dk, &Results::dk);
    add("dv", c.dv, &Results::dv);
    add("dbias", c.dbias, &Results::dbias);
    add("dsink", c.dsink, &Results::dsink);
  }
  return failures;
}

/// One call, checked; failures are prefixed with what was called. Returns the implementation that ran.
std::string check_call(Case& c, Pass pass, const Expected& expected, const std::string& label,
                       const std::function<Outcome(const Attention&, Pass)>& call, std::vector<std::string>& failures) {
  const Outcome outcome = run_guarded(c, pass, call);
  const std::string prefix =
      label + (pass == Pass::forward ? " forward" : " backward") + " (" + outcome.plan.implementation + "): ";
  if (!outcome.error.empty())
    failures.push_back(prefix + outcome.error);
  else
    for (const std::string& failure : compare_with(c, pass, expected)) failures.push_back(prefix + failure);
  return outcome.plan.implementation;
}

}  // namespace

std::vector<std::string> compare_results(const Case& c, Pass pass) { return compare_with(c, pass, expect(c)); }

std::vector<std::string> check_case(Case& c) {
  const Expected expected = expect(c);
  std::vector<std::string> failures;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::backward && !c.gradients()) continue;
    std::set<std::string> ran;
    for (const Backend backend : {Backend::cpu, Backend::standard}) {
      if (!has_backend(backend, pass)) continue;
      c.options.backend = backend;
      ran.insert(check_call(c, pass, expected, backend_name(backend), run_public, failures));
    }
    c.options.backend = Backend::automatic;
    for (const Implementation* implementation : implementations()) {
      Problem problem;
      if (implementation->pass != pass || ran.count(implementation->name)) continue;
      const Attention args = pass == Pass::forward ? c.forward_args() : c.backward_args();
      if (!make_problem(args, pass, Use::run, problem).ok() || implementation->reject(problem)) continue;
      check_call(
          c, pass, expected, "direct",
          [&](const Attention& a, Pass p) { return run_implementation(*implementation, a, p); }, failures);
    }
  }
  return failures;
}

}  // namespace onchip::test
