// Tiled forward attention: cuts the problem into blocks of query rows and hands them to threads, longest first.
#include <algorithm>

#include "core/threads.hpp"
#include "cpu/few_rows.hpp"
#include "cpu/forward_in_double.hpp"
#include "cpu/forward_kernel.hpp"
#include "cpu/host.hpp"
#include "cpu/implementations.hpp"
#include "model/tile_choice.hpp"
#include "shared/ceil_div.hpp"

namespace onchip::cpu {
namespace {

constexpr std::int64_t kKeyGranule = 8;

/// Tasks a thread should have before blocks of rows are made smaller; a row's bits do not depend on their size.
constexpr std::int64_t kTasksPerThread = 4;

struct Task {
  float work;  // pairs of row and key
  std::int32_t kv_head;
  std::int64_t batch;
  std::int64_t block;
};

/// Work is compared in this many classes, so that within a class a head's blocks stay together and share its keys in
/// the last cache.
constexpr float kWorkClasses = 8;

std::int64_t packed_rows(const Problem& problem, const Sequence& sequence) {
  return sequence.seqlen_q * problem.heads_per_kv();
}

/// At least as many as there are, whatever cu_seqlens holds.
std::int64_t max_blocks(const Problem& problem, std::int64_t tile_m) {
  const Tensor& q = problem.args.q;
  const std::int64_t queries = problem.layout_q == Layout::packed ? q.shape[0] : q.shape[0] * q.shape[1];
  return queries * problem.heads_per_kv() / tile_m + problem.batch;
}

QueryBlock query_block(const Problem& problem, const TileConfig& tile, const Task& task) {
  const Sequence sequence = problem.sequence(task.batch);
  const std::int64_t first = task.block * tile.tile_m;
  const std::int64_t rows = std::min(tile.tile_m, packed_rows(problem, sequence) - first);
  return {sequence, task.kv_head, problem.heads_per_kv(), first, rows};
}

/// Pairs of row and key in the block.
float block_work(const QueryBlock& block) {
  const auto keys = static_cast<float>(block.keys_of_any().size());
  return keys * static_cast<float>(block.rows);
}

/// Fills `tasks`, longest first, and returns how many there are. Batch-invariant, sequences of few rows are left to
/// split-key attention, as when they are alone.
std::int64_t make_tasks(const Problem& problem, const TileConfig& tile, const HeadSelection& selected, Task* tasks) {
  std::int64_t count = 0;
  float most_work = 0;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    if (problem.args.batch_invariant && has_few_rows(problem, problem.sequence(batch))) continue;
    const std::int64_t blocks = ceil_div(packed_rows(problem, problem.sequence(batch)), tile.tile_m);
    for (std::int64_t block = 0; block < blocks; ++block) {
      Task task{0, 0, batch, block};
      task.work = block_work(query_block(problem, tile, task));
      most_work = std::max(most_work, task.work);
      for (task.kv_head = 0; task.kv_head < problem.num_heads_kv; ++task.kv_head)
        if (selected(batch, task.kv_head)) tasks[count++] = task;
    }
  }
  const float unit = std::max(1.0f, most_work / kWorkClasses);
  std::sort(tasks, tasks + count, [unit](const Task& a, const Task& b) {
    const int class_a = static_cast<int>(a.work / unit), class_b = static_cast<int>(b.work / unit);
    if (class_a != class_b) return class_a > class_b;
    if (a.batch != b.batch) return a.batch < b.batch;
    if (a.kv_head != b.kv_head) return a.kv_head < b.kv_head;
    return a.block > b.block;
  });
  return count;
}

/// Keys for which one panel of scores fills half of L1, where softmax and products find it again.
template <typename T>
std::int64_t keys_in_l1(const KernelShape& shape) {
  const std::int64_t fits = host_caches().l1_bytes / 2 / (shape.panel_lanes * static_cast<std::int64_t>(sizeof(T)));
  return std::max<std::int64_t>(1, fits / kKeyGranule) * kKeyGranule;
}

/// Rows of a block: at most tile_m, enough blocks for every thread, blocks of even size in whole panels. A row's bits
/// do not depend on it.
std::int64_t block_rows(const Problem& problem, const KernelShape& shape, std::int64_t tile_m) {
  const std::int64_t rows = problem.max_seqlen_q * problem.heads_per_kv();
  if (rows <= shape.panel_lanes)
    return std::max<std::int64_t>(1, ceil_div(rows, shape.vector_lanes)) * shape.vector_lanes;
  const std::int64_t tasks = problem.num_threads > 1 ? kTasksPerThread * problem.num_threads : 1;
  const std::int64_t wanted = ceil_div(tasks, std::max<std::int64_t>(1, problem.batch * problem.num_heads_kv));
  const std::int64_t blocks = std::min(std::max(wanted, ceil_div(rows, tile_m)), ceil_div(rows, shape.panel_lanes));
  return ceil_div(ceil_div(rows, blocks), shape.panel_lanes) * shape.panel_lanes;
}

template <typename T>
TileConfig choose_tile(const Problem& problem) {
  const KernelShape shape = forward_shape<T>();
  model::CpuTileRequest request = model::cpu_tile_request(problem, sizeof(T), shape.panel_lanes, kKeyGranule);
  request.rows_per_query = problem.heads_per_kv();
  request.max_tile_n = keys_in_l1<T>(shape);
  // Each panel of rows computes with no more than the keys it sees, so masked edges cost nothing that tiles could save.
  request.window_left = request.window_right = -1;
  TileConfig tile = model::choose_cpu_tile(request, host_caches(), [&](std::int64_t tile_m, std::int64_t tile_n) {
    return static_cast<std::int64_t>(forward_scratch_bytes<T>(problem, {tile_m, tile_n}));
  });
  tile.tile_m = block_rows(problem, shape, tile.tile_m);
  return tile;
}

template <typename T>
void configure_as(const Problem& problem, Plan& plan) {
  plan.tile = choose_tile<T>(problem);
  const std::int64_t tasks = max_blocks(problem, plan.tile.tile_m) * problem.num_heads_kv;
  plan.num_threads = static_cast<int>(std::clamp<std::int64_t>(tasks, 1, problem.num_threads));
  plan.workspace_bytes = aligned_bytes<Task>(static_cast<std::size_t>(tasks)) +
                         static_cast<std::size_t>(plan.num_threads) * forward_scratch_bytes<T>(problem, plan.tile);
}

template <typename T>
void run_as(const Problem& problem, const Plan& plan, const HeadSelection& selected, std::span<std::byte> workspace) {
  WorkspaceCursor cursor(workspace);
  const std::int64_t room = max_blocks(problem, plan.tile.tile_m) * problem.num_heads_kv;
  Task* tasks = cursor.take<Task>(static_cast<std::size_t>(room));
  const std::int64_t count = make_tasks(problem, plan.tile, selected, tasks);
  const std::size_t scratch_bytes = forward_scratch_bytes<T>(problem, plan.tile);
  auto* scratch = cursor.take<std::byte>(scratch_bytes * static_cast<std::size_t>(plan.num_threads));
  parallel_tasks(count, plan.num_threads, [&](std::int64_t task, int thread) {
    forward_block<T>(problem, plan.tile, query_block(problem, plan.tile, tasks[task]), selected.large,
                     scratch + static_cast<std::size_t>(thread) * scratch_bytes);
  });
}

std::optional<std::string> reject(const Problem&) { return std::nullopt; }

/// The plan of a forward pass in double.
Plan plan_in_double(const Problem& problem) {
  Plan plan;
  configure_as<double>(problem, plan);
  return plan;
}

void configure(const Problem& problem, Plan& plan) {
  WorkspaceCursor cursor;
  const LargeLogits large(problem, cursor);
  std::size_t others = LargeLogits::scratch_bytes(problem);
  if (problem.dtype() != DType::f64) others = std::max(others, plan_in_double(problem).workspace_bytes);
  if (problem.args.batch_invariant) others = std::max(others, few_rows_bytes(problem));
  problem.dtype() == DType::f64 ? configure_as<double>(problem, plan) : configure_as<float>(problem, plan);
  plan.workspace_bytes = cursor.used_bytes() + std::max(plan.workspace_bytes, others);
}

/// The parts of a pass take turns with the workspace.
Status run(const Problem& problem, const Plan& plan, std::span<std::byte> workspace) {
  WorkspaceCursor cursor(workspace);
  const LargeLogits large(problem, cursor);
  const std::span<std::byte> scratch = workspace.subspan(cursor.used_bytes());
  large.start(problem.num_threads, scratch.data());
  if (problem.dtype() == DType::f64)
    run_as<double>(problem, plan, {large, false}, scratch);
  else
    run_as<float>(problem, plan, {large, false}, scratch);
  if (large.any()) run_as<double>(problem, plan_in_double(problem), {large, true}, scratch);
  return problem.args.batch_invariant ? forward_few_rows(problem, scratch) : Status();
}

}  // namespace

std::size_t forward_in_double_bytes(const Problem& problem) { return plan_in_double(problem).workspace_bytes; }

void forward_in_double(const Problem& problem, const HeadSelection& selected, std::span<std::byte> workspace) {
  run_as<double>(problem, plan_in_double(problem), selected, workspace);
}

const Implementation kForward{"cpu_forward", Backend::cpu, Pass::forward, reject, configure, run};

}  // namespace onchip::cpu
