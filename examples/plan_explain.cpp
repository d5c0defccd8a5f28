// What would run, from shapes alone: no tensor has data. Then strict mode, which refuses instead of falling back.
#include <cstdio>
#include <onchip/onchip.hpp>
#include <string>

int main() {
  constexpr void* no_data = nullptr;
  onchip::Attention attention;
  attention.q = onchip::contiguous(no_data, onchip::DType::bf16, {4, 2048, 16, 128});
  attention.k = attention.v = onchip::contiguous(no_data, onchip::DType::bf16, {4, 2048, 4, 128});
  attention.causal = true;
  const onchip::Plan plan = onchip::plan(attention, onchip::Pass::forward);
  std::printf("%s needs %zu bytes of workspace for %.1f GFLOP\n\n%s\n", plan.implementation.c_str(),
              plan.workspace_bytes, plan.predicted.flops / 1e9,
              onchip::explain(attention, onchip::Pass::forward).c_str());

  const std::string json = onchip::explain_json(attention, onchip::Pass::backward);
  std::printf("%s\n\n", json.c_str());

  attention.backend = onchip::Backend::standard;
  attention.at_least = plan.implementation;
  try {
    onchip::plan(attention, onchip::Pass::forward);
  } catch (const onchip::Error& error) {
    std::printf("%s\n", error.what());
    return error.code() == onchip::StatusCode::unsupported ? 0 : 1;
  }
  return plan.backend == onchip::Backend::standard ? 0 : 1;
}
