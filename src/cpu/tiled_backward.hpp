// Tiled backward attention: cuts the problem into tiles of keys and hands groups of them to threads, longest first.
//
// A task owns the tiles t ≡ split (mod num_splits) of one sequence and KV head: their rows of dk and dv, and a copy of
// dq for the split. So nothing is added to by two threads, and every sum has one order: copies of dq are summed split
// by split at the end. The number of splits comes from the problem, never from the number of threads.
//
// Where dbias is summed over sequences or heads, a task goes through all that share it, for its tiles: those are
// columns of dbias that no other task touches.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/number_format.hpp"
#include "core/threads.hpp"
#include "cpu/backward_kernel.hpp"
#include "cpu/host.hpp"
#include "cpu/prefetch.hpp"
#include "cpu/row_gradients.hpp"
#include "cpu/row_order.hpp"
#include "model/tile_choice.hpp"
#include "shared/ceil_div.hpp"

namespace onchip::cpu {

/// Sequence lengths the tile is chosen for, before it is cut to size. The problem's own may be unknown when it is
/// planned, and workspace must not grow when they become known.
inline constexpr std::int64_t kNominalLength = 4096;
inline constexpr std::int64_t kKeyGranule = 8;

/// Tasks that a problem is cut into at least, as far as it has tiles and copies of dq stay below kMostSplitBytes.
inline constexpr std::int64_t kEnoughTasks = 16;
inline constexpr std::int64_t kMostSplitBytes = std::int64_t{48} << 20;

inline constexpr std::int64_t kRowsPerStep = 256;

/// Sequences and KV heads that a task goes through: one each, or all where dbias is summed over them.
struct TaskGroups {
  std::int64_t sequences, heads;  // number of groups

  explicit TaskGroups(const Problem& p)
      : sequences(p.args.dbias.present() ? p.args.dbias.shape[0] : p.batch),
        heads(p.args.dbias.present() && p.args.dbias.shape[1] == 1 ? 1 : p.num_heads_kv) {}
};

/// Marks all heads of a group where one of them is marked: they are added to one sum. So are the sequences that share
/// pages. Batch-invariant, those are always marked: nothing then follows from the others.
inline void mark_whole_groups(const Problem& problem, const LargeLogits& large) {
  const TaskGroups groups(problem);
  const bool pages = problem.layout_k == Layout::paged && (problem.args.dk.present() || problem.args.dv.present());
  const bool all_sequences = pages || groups.sequences != problem.batch;
  const bool all_heads = pages || groups.heads != problem.num_heads_kv;
  const std::int64_t sequences = all_sequences ? problem.batch : 1, heads = all_heads ? problem.num_heads_kv : 1;
  if (sequences * heads == 1 && !all_sequences) return;
  for (std::int64_t b = 0; b < problem.batch; b += sequences)
    for (std::int64_t h = 0; h < problem.num_heads_kv; h += heads) {
      bool any = problem.args.batch_invariant && all_sequences;
      const auto for_each = [&](auto&& visit) {
        for (std::int64_t i = 0; i < sequences * heads; ++i) visit(b + i / heads, h + i % heads);
      };
      for_each([&](std::int64_t sequence, std::int64_t head) { any = any || large.at(sequence, head); });
      if (any) for_each([&](std::int64_t sequence, std::int64_t head) { large.set(sequence, head); });
    }
}

struct BackwardTask {
  double work;  // pairs of row and key
  std::int32_t sequence_group, head_group, split;
};

/// Splits where a sequence's neighbours must not matter: dq is kept once for each.
inline constexpr std::int64_t kMostInvariantSplits = 4;

/// The largest tile that the problem is worth, and splits. Batch-invariant, neither follows from lengths or the batch.
template <typename T>
TileConfig choose_backward_tile(const Problem& problem) {
  const BackwardShape shape = backward_shape<T>();
  model::CpuTileRequest request = model::cpu_tile_request(problem, sizeof(T), shape.panel_lanes, kKeyGranule);
  request.seqlen_q = request.seqlen_k = kNominalLength;
  TileConfig tile = model::choose_cpu_tile(request, host_caches());
  const TaskGroups groups(problem);
  if (problem.args.batch_invariant) {
    tile.num_splits = std::clamp<std::int64_t>(ceil_div(kEnoughTasks, groups.heads), 1, kMostInvariantSplits);
    return tile;
  }
  const std::int64_t rows = std::max<std::int64_t>(1, problem.max_seqlen_q * problem.heads_per_kv());
  const std::int64_t keys = std::max<std::int64_t>(1, problem.max_seqlen_k);
  tile.tile_m = std::min(tile.tile_m, ceil_div(rows, shape.vector_lanes) * shape.vector_lanes);
  tile.tile_n = std::min(tile.tile_n, ceil_div(keys, kKeyGranule) * kKeyGranule);
  const std::int64_t tasks = std::max<std::int64_t>(1, groups.sequences * groups.heads);
  const std::int64_t copy_bytes =
      query_rows(problem) * problem.num_heads_q * padded<T>(problem.head_dim) * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t affordable = kMostSplitBytes / std::max<std::int64_t>(1, copy_bytes);
  tile.num_splits =
      std::clamp<std::int64_t>(std::min(ceil_div(kEnoughTasks, tasks), affordable), 1, ceil_div(keys, tile.tile_n));
  return tile;
}

/// The same number of tiles, each no taller than needed. Workspace is sized for the tile before that, which does not
/// grow when sequences turn out shorter.
inline TileConfig with_even_tiles(const Problem& problem, TileConfig tile) {
  if (problem.args.batch_invariant) return tile;
  const std::int64_t keys = std::max<std::int64_t>(1, problem.max_seqlen_k);
  const std::int64_t even = ceil_div(keys, ceil_div(keys, tile.tile_n));
  tile.tile_n = ceil_div(even, kKeyGranule) * kKeyGranule;
  return tile;
}

template <typename T>
class TiledBackward {
 public:
  TiledBackward(const Problem& problem, const TileConfig& tile, int threads, const HeadSelection& selected,
                const SinkGradient& dsink, WorkspaceCursor& cursor)
      : problem_(problem),
        args_(problem.args),
        tile_(tile),
        threads_(threads),
        selected_(selected),
        dsink_(dsink),
        groups_(problem),
        packed_rows_(query_rows(problem) * problem.num_heads_q),
        dq_stride_(padded<T>(problem.head_dim)),
        dbias_stride_(padded<T>(tile.tile_n)),
        rows_{take_rows(cursor), take_rows(cursor), take_rows(cursor)},
        dk_(problem, problem.args.dk, cursor),
        dv_(problem, problem.args.dv, cursor),
        users_(problem, cursor),
        dq_(cursor.take<T>(args_.dq.present() ? size(tile.num_splits * packed_rows_ * dq_stride_) : 0)),
        dbias_(cursor.take<T>(size(threads * dbias_elements()))),
        tasks_(cursor.take<BackwardTask>(size(num_tasks()))),
        scratch_bytes_(backward_scratch_bytes<T>(problem, tile)),
        scratch_(cursor.take<std::byte>(scratch_bytes_ * size(threads))) {}

  std::int64_t num_tasks() const { return groups_.sequences * groups_.heads * tile_.num_splits; }

  /// Before the first run over a problem: what no head's run writes.
  void start() const {
    if (args_.dbias.present()) clear_tensor(args_.dbias, threads_);
    dk_.start(threads_);
    dv_.start(threads_);
    dsink_.start();
  }

  /// The gradients of the selected heads, and their part of dsink.
  void run() const {
    for_each_step([this](auto&&... step) { prepare_rows(step...); });
    const std::int64_t count = make_tasks();
    parallel_tasks(count, threads_, [this](std::int64_t task, int thread) { run_task(tasks_[task], thread); });
    if (args_.dq.present()) for_each_step([this](auto&&... step) { write_dq(step...); });
    users_.find(problem_);
    dk_.finish(users_, threads_, row_scratch());
    dv_.finish(users_, threads_, row_scratch());
    const LseRows lse(problem_, args_.lse);
    dsink_.add(threads_, selected_, [&](const Sequence& s, std::int64_t head, std::int64_t i) {
      const std::int64_t group = problem_.heads_per_kv();
      const std::int64_t row = first_packed_row(problem_, s, head / group) + i * group + head % group;
      return std::pair<double, double>(load_element(args_.lse.dtype, lse.at(s, i, head), 0), rows_.delta[row]);
    });
  }

 private:
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

  /// Whole vectors are read from any row on.
  T* take_rows(WorkspaceCursor& cursor) const { return cursor.take<T>(size(packed_rows_ + padded<T>(1))); }

  std::int64_t dbias_heads() const { return args_.dbias.shape[1] == 1 ? 1 : problem_.heads_per_kv(); }
  std::int64_t dbias_elements() const {
    return args_.dbias.present() ? dbias_heads() * problem_.max_seqlen_q * dbias_stride_ : 0;
  }
  std::byte* scratch(int thread) const { return scratch_ + scratch_bytes_ * size(thread); }
  /// A row for each thread.
  T* row_scratch() const { return reinterpret_cast<T*>(scratch_); }

  /// Calls body(sequence, kv_head, first_row, end_row, thread) for steps of packed rows.
  template <typename Body>
  void for_each_step(const Body& body) const {
    const std::int64_t steps = ceil_div(problem_.max_seqlen_q * problem_.heads_per_kv(), kRowsPerStep);
    parallel_tasks(problem_.batch * problem_.num_heads_kv * steps, threads_, [&](std::int64_t task, int thread) {
      const Sequence s = problem_.sequence(task / (problem_.num_heads_kv * steps));
      const std::int64_t kv_head = task / steps % problem_.num_heads_kv;
      const std::int64_t rows = s.seqlen_q * problem_.heads_per_kv(), first = task % steps * kRowsPerStep;
      const std::int64_t end = std::min(rows, first + kRowsPerStep);
      if (first < end && selected_(s.batch, kv_head)) body(s, kv_head, first, end, thread);
    });
  }

  void prepare_rows(const Sequence& s, std::int64_t kv_head, std::int64_t first, std::int64_t end, int thread) const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const RowKernels<T>& kernels = row_kernels<T>();
    const QueryRows o_rows(problem_, args_.o), dout_rows(problem_, args_.dout);
    const LseRows lse_rows(problem_, args_.lse);
    const std::int64_t base = first_packed_row(problem_, s, kv_head), group = problem_.heads_per_kv();
    T* o = reinterpret_cast<T*>(scratch(thread));
    T* dout = o + padded<T>(problem_.head_dim_v);
    const std::int64_t o_bytes = problem_.head_dim_v * static_cast<std::int64_t>(size_of(args_.o.dtype));
    const std::int64_t dout_bytes = problem_.head_dim_v * static_cast<std::int64_t>(size_of(args_.dout.dtype));
    for (std::int64_t row = first; row < end; ++row) {
      const std::int64_t i = row / group, head = kv_head * group + row % group;
      if (const std::int64_t ahead = row + kRowsAhead; ahead < end) {
        prefetch_bytes(o_rows.at(s, ahead / group, kv_head * group + ahead % group), o_bytes);
        prefetch_bytes(dout_rows.at(s, ahead / group, kv_head * group + ahead % group), dout_bytes);
      }
      const double lse = load_element(args_.lse.dtype, lse_rows.at(s, i, head), 0);
      T& rounded = rows_.lse_log2[base + row];
      T& rest = rows_.lse_log2_rest[base + row];
      T& delta = rows_.delta[base + row];
      rest = delta = 0;
      if (lse == -kInfinity) {
        rounded = static_cast<T>(kInfinity);
        continue;
      }
      const double lse_log2 = lse * kLog2E;
      if (lse == kInfinity) {
        // An infinite score gets P = NaN, the others 0, as ∞ − ∞ and s − ∞ have it; +∞ alone is taken.
        rounded = std::numeric_limits<T>::max();
        rest = static_cast<T>(kInfinity);
      } else {
        rounded = static_cast<T>(lse_log2);
      }
      if (lse != kInfinity && std::isfinite(rounded)) rest = static_cast<T>(lse_log2 - static_cast<double>(rounded));
      kernels.load(args_.o.dtype, o_rows.at(s, i, head), problem_.head_dim_v, T{1}, o);
      kernels.load(args_.dout.dtype, dout_rows.at(s, i, head), problem_.head_dim_v, T{1}, dout);
      delta = kernels.dot(o, dout, problem_.head_dim_v);
    }
    if (!args_.dq.present()) return;
    for (std::int64_t split = 0; split < tile_.num_splits; ++split)
      std::fill(dq(split) + (base + first) * dq_stride_, dq(split) + (base + end) * dq_stride_, T{0});
  }

  T* dq(std::int64_t split) const { return dq_ + split * packed_rows_ * dq_stride_; }

  template <typename Body>
  void for_each_member(const BackwardTask& task, const Body& body) const {
    const bool all_sequences = groups_.sequences != problem_.batch, all_heads = groups_.heads != problem_.num_heads_kv;
    for (std::int64_t b = all_sequences ? 0 : task.sequence_group; b < problem_.batch; ++b) {
      const Sequence s = problem_.sequence(b);
      for (std::int64_t h = all_heads ? 0 : task.head_group; h < problem_.num_heads_kv; ++h) {
        body(s, h);
        if (!all_heads) break;
      }
      if (!all_sequences) break;
    }
  }

  /// Fills tasks_, longest first, and returns how many there are.
  std::int64_t make_tasks() const {
    std::int64_t count = 0;
    for (std::int32_t b = 0; b < groups_.sequences; ++b)
      for (std::int32_t h = 0; h < groups_.heads; ++h) {
        BackwardTask task{0, b, h, 0};
        bool selected = false;
        for_each_member(task, [&](const Sequence& s, std::int64_t kv_head) {
          task.work += static_cast<double>(s.seqlen_q) * static_cast<double>(s.seqlen_k);
          selected = selected_(s.batch, kv_head);
        });
        if (!selected) continue;
        for (; task.split < tile_.num_splits; ++task.split) tasks_[count++] = task;
      }
    std::stable_sort(tasks_, tasks_ + count,
                     [](const BackwardTask& a, const BackwardTask& b) { return a.work > b.work; });
    return count;
  }

  void run_task(const BackwardTask& task, int thread) const {
    std::int64_t longest = 0;
    for_each_member(task, [&](const Sequence& s, std::int64_t) { longest = std::max(longest, s.seqlen_k); });
    for (std::int64_t t = task.split; t * tile_.tile_n < longest; t += tile_.num_splits) run_tile(task, t, thread);
  }

  void run_tile(const BackwardTask& task, std::int64_t t, int thread) const {
    const BackwardCall<T> call{problem_, tile_, rows_, dk_, dv_};
    T* dbias = args_.dbias.present() ? dbias_ + thread * dbias_elements() : nullptr;
    if (dbias) std::fill_n(dbias, dbias_elements(), T{0});
    std::int64_t end = 0;
    for_each_member(task, [&](const Sequence& s, std::int64_t kv_head) {
      const KeyRange keys{t * tile_.tile_n, std::min((t + 1) * tile_.tile_n, s.seqlen_k)};
      if (keys.empty()) return;
      end = std::max(end, keys.end);
      T* dq_rows = args_.dq.present() ? dq(task.split) + first_packed_row(problem_, s, kv_head) * dq_stride_ : nullptr;
      backward_tile<T>(call, {s, kv_head, keys, dq_rows, dbias, problem_.max_seqlen_q}, scratch(thread));
    });
    if (dbias) write_dbias(task, {t * tile_.tile_n, end}, dbias);
  }

  /// Columns `keys` of the part of dbias that the task owns.
  void write_dbias(const BackwardTask& task, KeyRange keys, const T* dbias) const {
    const Tensor& tensor = args_.dbias;
    const auto element = static_cast<std::int64_t>(size_of(tensor.dtype));
    for (std::int64_t head = 0; head < dbias_heads(); ++head)
      for (std::int64_t i = 0; i < problem_.max_seqlen_q; ++i) {
        const std::int64_t offset = task.sequence_group * tensor.stride[0] +
                                    (task.head_group * dbias_heads() + head) * tensor.stride[1] + i * tensor.stride[2] +
                                    keys.begin;
        row_kernels<T>().store(tensor.dtype, dbias + (head * problem_.max_seqlen_q + i) * dbias_stride_, keys.size(),
                               T{1}, static_cast<std::byte*>(tensor.data) + offset * element);
      }
  }

  void write_dq(const Sequence& s, std::int64_t kv_head, std::int64_t first, std::int64_t end, int) const {
    const QueryRows rows(problem_, args_.dq);
    const std::int64_t base = first_packed_row(problem_, s, kv_head), group = problem_.heads_per_kv();
    const T scale = static_cast<T>(problem_.softmax_scale);
    for (std::int64_t row = first; row < end; ++row) {
      T* sum = dq(0) + (base + row) * dq_stride_;
      for (std::int64_t split = 1; split < tile_.num_splits; ++split)
        row_kernels<T>().add(dq(split) + (base + row) * dq_stride_, problem_.head_dim, sum);
      row_kernels<T>().store(args_.dq.dtype, sum, problem_.head_dim, scale,
                             rows.at(s, row / group, kv_head * group + row % group));
    }
  }

  const Problem& problem_;
  const Attention& args_;
  TileConfig tile_;
  int threads_;
  const HeadSelection& selected_;  // all heads of a task's group or none
  const SinkGradient& dsink_;
  TaskGroups groups_;
  std::int64_t packed_rows_, dq_stride_, dbias_stride_;
  RowStatistics<T> rows_;
  KeyGradient<T> dk_, dv_;
  PageUsers users_;
  T* dq_;     // [num_splits][packed rows][padded D]
  T* dbias_;  // for each thread [heads of dbias in the group][max_seqlen_q][padded tile_n]
  BackwardTask* tasks_;
  std::size_t scratch_bytes_;
  std::byte* scratch_;
};

}  // namespace onchip::cpu
