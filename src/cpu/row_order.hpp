// The order in which rows of all sequences and heads stand in workspaces.
#pragma once

#include <cstdint>

#include "core/problem.hpp"

namespace onchip::cpu {

/// Where a sequence's rows begin when those of all sequences are laid end to end, and how many there are in all.
inline std::int64_t first_query_row(const Problem& p, const Sequence& s) {
  return p.layout_q == Layout::packed ? s.begin_q : s.batch * p.max_seqlen_q;
}
inline std::int64_t first_key_row(const Problem& p, const Sequence& s) {
  return p.layout_k == Layout::packed ? s.begin_k : s.batch * p.max_seqlen_k;
}
inline std::int64_t query_rows(const Problem& p) {
  return p.layout_q == Layout::packed ? p.args.q.shape[0] : p.batch * p.max_seqlen_q;
}
inline std::int64_t key_rows(const Problem& p) {
  return p.layout_k == Layout::packed ? p.args.k.shape[0] : p.batch * p.max_seqlen_k;
}

/// The same for the rows of QueryBlock: those of the query heads that share a KV head follow each other, query by
/// query.
inline std::int64_t first_packed_row(const Problem& p, const Sequence& s, std::int64_t kv_head) {
  return first_query_row(p, s) * p.num_heads_q + kv_head * p.heads_per_kv() * s.seqlen_q;
}

}  // namespace onchip::cpu
