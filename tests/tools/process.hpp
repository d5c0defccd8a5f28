// Runs the command line as users do, and holds what it says to the rules for refusals.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace onchip::test {

struct Outcome {
  int status = -1;  // exit status; 128 + signal where one ended it
  std::string out, err;
};

/// Runs `onchip ARGS…`. With a limit, a file it writes can hold at most that many bytes, as on a full disk.
Outcome run_onchip(const std::vector<std::string>& args, std::optional<std::uint64_t> file_size_limit = {});

/// Runs `onchip ARGS…` with a full device as its standard output.
Outcome run_onchip_into_full_device(const std::vector<std::string>& args);

/// Exit status 2, one line on standard error with every one of `mentions`, and nothing on standard output.
void expect_refusal(const Outcome& outcome, const std::vector<std::string>& mentions);

}  // namespace onchip::test
