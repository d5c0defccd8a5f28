#include "support/visibility.hpp"

#include <vector>

namespace onchip::test {

void for_each_visible_pair(const Attention& args,
                           const std::function<void(const Span&, std::int64_t, std::int64_t, std::int64_t)>& visit) {
  const std::int64_t heads = args.q.shape[args.q.rank - 2];
  for (std::int64_t b = 0; b < batch_size(args); ++b) {
    const Span span = span_of(args, b);
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < span.seqlen_q; ++i)
        for (std::int64_t j = 0; j < span.seqlen_k; ++j)
          if (may_see(args, span, h, i, j)) visit(span, h, i, j);
  }
}

void for_each_visible_key(const Attention& args,
                          const std::function<void(const Span&, std::int64_t, std::int64_t)>& visit) {
  const std::int64_t heads = args.q.shape[args.q.rank - 2], kv_heads = args.k.shape[args.k.rank - 2];
  const std::int64_t group = heads / kv_heads;
  const auto seen = [&](const Span& span, std::int64_t j, std::int64_t g) {
    for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
      for (std::int64_t i = 0; i < span.seqlen_q; ++i)
        if (may_see(args, span, h, i, j)) return true;
    return false;
  };
  for (std::int64_t b = 0; b < batch_size(args); ++b) {
    const Span span = span_of(args, b);
    for (std::int64_t g = 0; g < kv_heads; ++g)
      for (std::int64_t j = 0; j < span.seqlen_k; ++j)
        if (seen(span, j, g)) visit(span, j, g);
  }
}

}  // namespace onchip::test
