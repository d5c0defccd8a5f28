// Split-key attention for few query rows: chunks of keys are computed by any thread in any order and merged in the
// order of the keys, so that results do not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/rows.hpp"
#include "core/threads.hpp"
#include "cpu/decode_kernel.hpp"
#include "cpu/few_rows.hpp"
#include "cpu/finish_rows.hpp"
#include "cpu/implementations.hpp"
#include "shared/ceil_div.hpp"

namespace onchip::cpu {
namespace {

/// Query rows of one KV head up to which reading the keys costs more than computing with them. Above, the tiles of the
/// forward kernel are faster.
constexpr std::int64_t kMaxRows = 16;

/// Keys in a chunk: many enough that the partial results are small beside them. Fixed, because a row's bits depend on
/// it.
constexpr std::int64_t kChunkKeys = 1024;

/// Elements of S that one task may have, all of its heads together: they should stay in L2.
constexpr std::int64_t kMaxTaskScores = 65536;

/// Tasks a thread should have before tasks take more heads.
constexpr std::int64_t kTasksPerThread = 2;

/// Of the sequences that are handled here.
std::int64_t max_rows(const Problem& problem) {
  return std::min(kMaxRows, problem.max_seqlen_q * problem.heads_per_kv());
}

/// Chunks of one KV head: those that some row may see. Chunks begin at multiples of kChunkKeys.
struct ChunkRange {
  std::int64_t first, count;
};

ChunkRange chunks_of(KeyRange keys) {
  if (keys.empty()) return {0, 0};
  const std::int64_t first = keys.begin / kChunkKeys;
  return {first, ceil_div(keys.end, kChunkKeys) - first};
}

QueryBlock whole_block(const Problem& problem, std::int64_t batch, std::int64_t kv_head) {
  const Sequence sequence = problem.sequence(batch);
  return {sequence, kv_head, problem.heads_per_kv(), 0, sequence.seqlen_q * problem.heads_per_kv()};
}

/// Most chunks that any sequence needs.
std::int64_t max_chunks(const Problem& problem) {
  return std::max<std::int64_t>(1, ceil_div(problem.max_seqlen_k, kChunkKeys));
}

/// KV heads in one task. Heads do not share results, so this may follow the number of threads. Where the rows of one
/// head follow each other in memory, it is better read alone.
std::int64_t heads_per_task(const Problem& problem) {
  const Tensor& k = problem.args.k;
  const bool rows_adjacent = k.stride[problem.layout_k == Layout::packed ? 0 : 1] == problem.head_dim;
  if (rows_adjacent || max_rows(problem) == 0) return 1;
  const std::int64_t tasks = problem.batch * max_chunks(problem) * problem.num_heads_kv;
  const std::int64_t enough = problem.num_threads > 1 ? tasks / (kTasksPerThread * problem.num_threads) : tasks;
  const std::int64_t most = std::min(kMaxTaskScores / (max_rows(problem) * kChunkKeys), problem.num_heads_kv);
  return std::max<std::int64_t>(1, std::min(enough, most));
}

/// The workspace: partial results [batch][chunk][kv_head], then the threads' scratch.
template <typename T>
class Partials {
 public:
  Partials(const Problem& problem, WorkspaceCursor& cursor)
      : heads_(problem.num_heads_kv),
        chunks_(max_chunks(problem)),
        rows_(max_rows(problem)),
        o_stride_(decode_output_stride<T>(problem)) {
    const std::int64_t parts = problem.batch * chunks_ * heads_;
    row_max_ = cursor.take<T>(static_cast<std::size_t>(parts * rows_));
    row_sum_ = cursor.take<T>(static_cast<std::size_t>(parts * rows_));
    o_ = cursor.take<T>(static_cast<std::size_t>(parts * rows_ * o_stride_));
  }

  static std::size_t bytes(const Problem& problem) {
    const auto rows =
        static_cast<std::size_t>(problem.batch * max_chunks(problem) * problem.num_heads_kv * max_rows(problem));
    return 2 * aligned_bytes<T>(rows) +
           aligned_bytes<T>(rows * static_cast<std::size_t>(decode_output_stride<T>(problem)));
  }

  DecodePartial<T> at(std::int64_t batch, std::int64_t chunk, std::int64_t head) const {
    const std::int64_t row = ((batch * chunks_ + chunk) * heads_ + head) * rows_;
    return {row_max_ + row, row_sum_ + row, o_ + row * o_stride_, rows_, o_stride_};
  }

 private:
  std::int64_t heads_, chunks_, rows_, o_stride_;
  T* row_max_;
  T* row_sum_;
  T* o_;
};

/// Joins the chunks of one row: maximum first, then weights, then the weighted sum, always in the order of the keys.
template <typename T>
class RowMerger {
 public:
  RowMerger(const Problem& problem, const Partials<T>& partials, const QueryBlock& block)
      : problem_(problem),
        partials_(partials),
        block_(block),
        unit_(score_units(problem).log2_unit),
        chunks_(chunks_of(block.keys_of_any()).count) {}

  /// `sum` has room for Dv numbers.
  void merge(std::int64_t r, T* sum) const {
    T row_max = -std::numeric_limits<T>::infinity();
    for (std::int64_t c = 0; c < chunks_; ++c) row_max = std::max(row_max, part(c).row_max[r]);
    double row_sum = 0;
    std::fill(sum, sum + problem_.head_dim_v, T(0));
    for (std::int64_t c = 0; c < chunks_; ++c) {
      const DecodePartial<T> from = part(c);
      const double weight = weight_of(from, r, row_max);
      row_sum += weight * static_cast<double>(from.row_sum[r]);
      const T* o = from.o + r * from.o_stride;
      const T w = static_cast<T>(weight);
      for (std::int64_t d = 0; d < problem_.head_dim_v; ++d) sum[d] += w * o[d];
    }
    store(r, finish(r, row_max, row_sum), sum);
  }

 private:
  DecodePartial<T> part(std::int64_t chunk) const { return partials_.at(block_.sequence.batch, chunk, block_.kv_head); }

  /// 2^(shift of the chunk − shift of the row). A chunk in which the row saw no key weighs nothing.
  double weight_of(const DecodePartial<T>& from, std::int64_t r, T row_max) const {
    const T own_max = from.row_max[r];
    const double own_shift = std::isfinite(own_max) ? static_cast<double>(own_max) : 0.0;
    const double shift = std::isfinite(row_max) ? static_cast<double>(row_max) : 0.0;
    return from.row_sum[r] == T(0) ? 0.0 : std::exp2(unit_ * (own_shift - shift));
  }

  FinishedRow finish(std::int64_t r, T row_max, double row_sum) const {
    const double max_log2 = unit_ * static_cast<double>(row_max);
    if (!problem_.args.sink.present()) return finish_row(max_log2, row_sum, nullptr);
    const float sink = sink_logit(problem_, block_.head(r));
    return finish_row(max_log2, row_sum, &sink);
  }

  void store(std::int64_t r, const FinishedRow& finished, T* sum) const {
    const std::int64_t i = block_.query(r), head = block_.head(r);
    const T factor = static_cast<T>(finished.output_factor);
    for (std::int64_t d = 0; d < problem_.head_dim_v; ++d) sum[d] *= factor;
    std::byte* o = QueryRows(problem_, problem_.args.o).at(block_.sequence, i, head);
    store_row(problem_.args.o.dtype, sum, problem_.head_dim_v, o);
    if (!problem_.args.lse.present()) return;
    std::byte* lse = LseRows(problem_, problem_.args.lse).at(block_.sequence, i, head);
    *reinterpret_cast<T*>(lse) = static_cast<T>(finished.lse);
  }

  const Problem& problem_;
  const Partials<T>& partials_;
  const QueryBlock& block_;
  const double unit_;
  const std::int64_t chunks_;
};

template <typename T>
std::size_t scratch_bytes(const Problem& problem) {
  const std::size_t chunk = decode_scratch_bytes<T>(problem, max_rows(problem) * heads_per_task(problem), kChunkKeys);
  return std::max(chunk, aligned_bytes<T>(static_cast<std::size_t>(problem.head_dim_v)));
}

template <typename T>
void configure_as(const Problem& problem, Plan& plan) {
  const std::int64_t tasks =
      problem.batch * max_chunks(problem) * ceil_div(problem.num_heads_kv, heads_per_task(problem));
  plan.num_threads = problem.max_seqlen_k == 0
                         ? 1  // all there is to do is to clear o
                         : static_cast<int>(std::clamp<std::int64_t>(tasks, 1, problem.num_threads));
  plan.tile = {max_rows(problem), kChunkKeys, max_chunks(problem), kChunkKeys};
  plan.workspace_bytes =
      Partials<T>::bytes(problem) + static_cast<std::size_t>(plan.num_threads) * scratch_bytes<T>(problem);
}

template <typename T>
void run_as(const Problem& problem, const Plan& plan, std::span<std::byte> workspace) {
  if (max_rows(problem) == 0) return;
  WorkspaceCursor cursor(workspace);
  const Partials<T> partials(problem, cursor);
  const std::size_t bytes = scratch_bytes<T>(problem);
  auto* scratch = cursor.take<std::byte>(bytes * static_cast<std::size_t>(plan.num_threads));
  const std::int64_t heads = problem.num_heads_kv, chunks = max_chunks(problem), group = heads_per_task(problem);
  const std::int64_t groups = ceil_div(heads, group);

  // Neighbouring tasks are the heads of one chunk: their rows lie side by side in memory.
  parallel_tasks(problem.batch * chunks * groups, plan.num_threads, [&](std::int64_t index, int thread) {
    const std::int64_t head = index % groups * group, chunk = index / groups % chunks, batch = index / groups / chunks;
    DecodeTask task{whole_block(problem, batch, head), std::min(group, heads - head), {}};
    if (task.rows() == 0 || task.rows() > kMaxRows) return;
    const KeyRange seen = task.first.keys_of_any();
    const ChunkRange range = chunks_of(seen);
    if (chunk >= range.count) return;
    const std::int64_t begin = (range.first + chunk) * kChunkKeys;
    task.keys = {std::max(begin, seen.begin), std::min(begin + kChunkKeys, seen.end)};
    decode_chunk<T>(problem, task, kChunkKeys, scratch + static_cast<std::size_t>(thread) * bytes,
                    partials.at(batch, chunk, head));
  });

  parallel_tasks(problem.batch * heads, plan.num_threads, [&](std::int64_t task, int thread) {
    const QueryBlock block = whole_block(problem, task / heads, task % heads);
    if (block.rows > kMaxRows) return;
    const RowMerger<T> merger(problem, partials, block);
    auto* sum = reinterpret_cast<T*>(scratch + static_cast<std::size_t>(thread) * bytes);
    for (std::int64_t r = 0; r < block.rows; ++r) merger.merge(r, sum);
  });
}

std::optional<std::string> reject(const Problem& problem) {
  const std::int64_t rows = problem.max_seqlen_q * problem.heads_per_kv();
  if (rows <= kMaxRows) return std::nullopt;
  return fmt::format("{} query rows share a KV head, at most {} are handled with split keys", rows, kMaxRows);
}

void configure(const Problem& problem, Plan& plan) {
  problem.dtype() == DType::f64 ? configure_as<double>(problem, plan) : configure_as<float>(problem, plan);
}

Status run(const Problem& problem, const Plan& plan, std::span<std::byte> workspace) {
  problem.dtype() == DType::f64 ? run_as<double>(problem, plan, workspace) : run_as<float>(problem, plan, workspace);
  return {};
}

}  // namespace

bool has_few_rows(const Problem& problem, const Sequence& sequence) {
  return sequence.seqlen_q * problem.heads_per_kv() <= kMaxRows;
}

std::size_t few_rows_bytes(const Problem& problem) {
  Plan plan;
  configure(problem, plan);
  return plan.workspace_bytes;
}

Status forward_few_rows(const Problem& problem, std::span<std::byte> workspace) {
  Plan plan;
  configure(problem, plan);
  return run(problem, plan, workspace);
}

const Implementation kDecode{"cpu_decode", Backend::cpu, Pass::forward, reject, configure, run};

}  // namespace onchip::cpu
