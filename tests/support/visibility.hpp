// Which inputs a result may depend on: everything else can hold NaN and must change nothing.
#pragma once

#include <cstdint>
#include <functional>

#include "reference/attention.hpp"

namespace onchip::test {

/// Calls visit(sequence, head, i, j) for each pair that the window and the mask of `args` leave.
void for_each_visible_pair(const Attention& args,
                           const std::function<void(const Span&, std::int64_t, std::int64_t, std::int64_t)>& visit);

/// Calls visit(sequence, j, KV head) for each key that at least one query may see, maybe more than once for a key of a
/// shared page.
void for_each_visible_key(const Attention& args,
                          const std::function<void(const Span&, std::int64_t, std::int64_t)>& visit);

}  // namespace onchip::test
