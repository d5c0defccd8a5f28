// Split-key attention as a part of a forward pass: for the sequences of few query rows among others. Whether a sequence
// is one of them follows from its own length, which is what batch-invariant results need.
#pragma once

#include <cstddef>
#include <span>

#include "core/problem.hpp"

namespace onchip::cpu {

bool has_few_rows(const Problem& problem, const Sequence& sequence);

std::size_t few_rows_bytes(const Problem& problem);
/// o and lse of the sequences that have few rows.
Status forward_few_rows(const Problem& problem, std::span<std::byte> workspace);

}  // namespace onchip::cpu
