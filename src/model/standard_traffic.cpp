// Standard attention: every product and every element-wise step is a kernel whose scores go through memory.
#include <algorithm>

#include "model/traffic.hpp"

namespace onchip::model {
namespace {

double size(DType type) { return static_cast<double>(size_of(type)); }

/// One input of a kernel, in bytes of all heads.
struct Operand {
  double bytes = 0;
  double requests = 1;        ///< how often the units ask the shared cache for each byte
  bool read_by_all = false;   ///< by units of every part of the cache, and kept between their requests
  bool intermediate = false;  ///< written by a kernel before
};

struct Kernel {
  const char* name = "";
  std::vector<Operand> inputs;
  double written = 0;
  bool in_place = false;  ///< writes over its first inputs
  double flops = 0;
  double exponentials = 0;
  double near_bytes_per_flop = 0;  ///< operands from the nearest level
  double tile_bytes_per_flop = 0;  ///< operands from the tile level, where that is another

  double streamed() const {
    double bytes = in_place ? 0 : written;
    for (const Operand& input : inputs) bytes += input.bytes;
    return bytes;
  }
};

struct Sizes {
  double heads, heads_kv, seqlen_q, seqlen_k, d, dv;
  double q, o, k, v, lse;  ///< bytes
  double scores;           ///< bytes of S
  double pairs;
};

Sizes sizes_of(const AttentionShape& shape, DType score_dtype) {
  Sizes s{};
  s.heads = static_cast<double>(shape.batch * shape.num_heads_q);
  s.heads_kv = static_cast<double>(shape.batch * shape.num_heads_kv);
  s.seqlen_q = static_cast<double>(shape.seqlen_q);
  s.seqlen_k = static_cast<double>(shape.seqlen_k);
  s.d = static_cast<double>(shape.head_dim);
  s.dv = static_cast<double>(shape.head_dim_v);
  s.q = shape.q_bytes();
  s.o = shape.o_bytes();
  s.lse = shape.lse_bytes();
  s.k = s.heads_kv * s.seqlen_k * s.d * size(shape.kv_dtype);
  s.v = s.heads_kv * s.seqlen_k * s.dv * size(shape.kv_dtype);
  s.pairs = s.heads * s.seqlen_q * s.seqlen_k;
  s.scores = s.pairs * size(score_dtype);
  return s;
}

Operand streamed(double bytes) { return {.bytes = bytes}; }
Operand intermediate(double bytes) { return {.bytes = bytes, .intermediate = true}; }

/// C[m, n] = A[m, k] · B[k, n] for each head. A is asked for once for each column of tiles, B once for each row of
/// them (and of clusters); `repeats` heads share one B.
struct Product {
  const char* name;
  double m, n, k;
  Operand a, b;
  double repeats = 1;
  double written = 0;
};

Kernel product_kernel(const Machine& machine, const Product& p, double heads, double element_bytes) {
  const auto tiles = [](double extent, double tile) { return std::max(1.0, extent / tile); };
  Kernel kernel;
  kernel.name = p.name;
  Operand a = p.a, b = p.b;
  const double columns = tiles(p.n, machine.gemm.tile_n);
  const double rows = std::max(1.0, tiles(p.m, machine.gemm.tile_m) / machine.gemm.cluster);
  a.requests = columns;
  a.read_by_all = columns > 1;
  b.requests = rows * p.repeats;
  b.read_by_all = b.requests > 1;
  kernel.inputs = {a, b};
  kernel.written = p.written;
  kernel.flops = 2 * heads * p.m * p.n * p.k;
  kernel.near_bytes_per_flop = 0.5 * element_bytes * (1 / machine.block.queries + 1 / machine.block.keys);
  kernel.tile_bytes_per_flop = 0.5 * element_bytes / machine.block.queries;
  return kernel;
}

/// Writes as much as it reads of the scores.
Kernel elementwise_kernel(const char* name, std::vector<Operand> inputs, double written, bool in_place) {
  Kernel kernel;
  kernel.name = name;
  kernel.inputs = std::move(inputs);
  kernel.written = written;
  kernel.in_place = in_place;
  return kernel;
}

/// The kernels of one pass, in order.
class Sequence {
 public:
  Sequence(const Machine& machine, const AttentionShape& shape, const StandardMethod& method)
      : machine_(machine), shape_(shape), method_(method), s_(sizes_of(shape, method.score_dtype)) {}

  std::vector<Kernel> forward() {
    scores();
    if (method_.textbook) {
      elementwise("scale", {scores_in(), terms()}, s_.scores, false);
      elementwise("softmax", {scores_in()}, s_.scores, false);
    } else {
      elementwise("softmax", {scores_in(), terms()}, s_.scores, true);
    }
    kernels_.back().exponentials = s_.pairs;
    product({"PV", s_.seqlen_q, s_.dv, s_.seqlen_k, scores_in(), streamed(s_.v), group(), s_.o + s_.lse});
    return std::move(kernels_);
  }

  std::vector<Kernel> backward() {
    scores();
    const Product dp{"dP = dO·Vᵀ", s_.seqlen_q, s_.seqlen_k, s_.dv, streamed(s_.o), streamed(s_.v), group(), s_.scores};
    if (method_.textbook) {
      elementwise("scale", {scores_in(), terms()}, s_.scores, false);
      elementwise("softmax", {scores_in()}, s_.scores, false);
      kernels_.back().exponentials = s_.pairs;
      product(dp);
      elementwise("dS", {scores_in(), scores_in(), streamed(2 * s_.o)}, s_.scores, false);
    } else {
      product(dp);
      elementwise("P and dS", {scores_in(), scores_in(), streamed(2 * s_.o), terms()}, 2 * s_.scores, true);
      kernels_.back().exponentials = s_.pairs;
    }
    product({"dV = Pᵀ·dO", s_.seqlen_k, s_.dv, s_.seqlen_q, scores_in(), streamed(s_.o), 1, s_.v});
    product({"dQ = dS·K", s_.seqlen_q, s_.d, s_.seqlen_k, scores_in(), streamed(s_.k), group(), s_.q});
    product({"dK = dSᵀ·Q", s_.seqlen_k, s_.d, s_.seqlen_q, scores_in(), streamed(s_.q), 1, s_.k});
    return std::move(kernels_);
  }

 private:
  double group() const { return s_.heads / s_.heads_kv; }
  Operand scores_in() const { return intermediate(s_.scores); }
  Operand terms() const { return streamed(shape_.score_bytes_per_pair * s_.pairs / shape_.score_sharers); }

  void scores() {
    product({"QKᵀ", s_.seqlen_q, s_.seqlen_k, s_.d, streamed(s_.q), streamed(s_.k), group(), s_.scores});
  }
  void product(const Product& p) { kernels_.push_back(product_kernel(machine_, p, s_.heads, operand_size())); }
  void elementwise(const char* name, std::vector<Operand> inputs, double written, bool in_place) {
    kernels_.push_back(elementwise_kernel(name, std::move(inputs), written, in_place));
  }
  /// A CPU computes in the type of the scores.
  double operand_size() const { return size(machine_.kind == MachineKind::cpu ? method_.score_dtype : shape_.dtype); }

  const Machine& machine_;
  const AttentionShape& shape_;
  const StandardMethod& method_;
  Sizes s_;
  std::vector<Kernel> kernels_;
};

/// Written bytes of each kernel that are still in the cache at the end: of the kernel where the cache is flushed after
/// it, else of the whole sequence, which the cache holds the last part of.
std::vector<double> dirty_bytes(const Machine& machine, const std::vector<Kernel>& kernels, CacheBetweenKernels cache) {
  std::vector<double> dirty(kernels.size(), 0.0);
  if (!machine.has_shared_cache()) return dirty;
  double room = machine.reuse_capacity();
  for (std::size_t i = kernels.size(); i-- > 0;) {
    const double bytes = kernels[i].streamed();
    if (cache == CacheBetweenKernels::flushed) room = machine.reuse_capacity();
    const double held = std::min(room, bytes);
    if (bytes > 0) dirty[i] = kernels[i].written * held / bytes;
    room -= held;
  }
  return dirty;
}

double main_memory_reads(const Machine& machine, const Kernel& kernel, double heads, CacheBetweenKernels cache) {
  double bytes = machine.write_allocate && !kernel.in_place ? kernel.written : 0;
  const bool all_fits = kernel.streamed() <= machine.reuse_capacity();
  for (const Operand& input : kernel.inputs) {
    const bool found = input.intermediate && all_fits && cache == CacheBetweenKernels::kept;
    const bool reread = input.bytes / heads > machine.reuse_capacity();
    if (!found) bytes += input.bytes * (reread ? input.requests : 1);
  }
  return bytes;
}

Traffic traffic_of(const Machine& machine, const Kernel& kernel, double dirty, double heads,
                   CacheBetweenKernels cache) {
  Traffic t;
  t.levels.resize(machine.levels.size());
  t.flops = kernel.flops;
  t.exponentials = kernel.exponentials;
  t.dirty_bytes = dirty;
  double requested = 0, read_by_all = 0, read_by_one = 0;
  for (const Operand& input : kernel.inputs) {
    requested += input.bytes * input.requests;
    (input.read_by_all ? read_by_all : read_by_one) += input.bytes;
  }
  for (std::size_t i = 0; i <= machine.tile_level(); ++i) {
    const double per_flop = i == 0 ? kernel.near_bytes_per_flop : kernel.tile_bytes_per_flop;
    t.levels[i].read_bytes = per_flop > 0 ? kernel.flops * per_flop : requested;
    t.levels[i].write_bytes = kernel.written;
  }
  if (machine.has_shared_cache()) {
    LevelTraffic& shared = t.levels[machine.main_level() - 1];
    shared.read_bytes = requested + partition_crossings(machine, read_by_all, read_by_one);
    shared.write_bytes = kernel.written + partition_crossings(machine, 0, kernel.written);
  }
  t.levels.back().read_bytes = main_memory_reads(machine, kernel, heads, cache);
  t.levels.back().write_bytes = kernel.written - dirty;
  return t;
}

}  // namespace

std::vector<StandardKernel> standard_kernels(const Machine& machine, const AttentionShape& shape,
                                             const StandardMethod& method, Pass pass) {
  std::vector<StandardKernel> result;
  if (shape.batch == 0) return result;
  Sequence sequence(machine, shape, method);
  const std::vector<Kernel> kernels = pass == Pass::forward ? sequence.forward() : sequence.backward();
  const std::vector<double> dirty = dirty_bytes(machine, kernels, method.cache);
  const auto heads = static_cast<double>(shape.batch * shape.num_heads_q);
  for (std::size_t i = 0; i < kernels.size(); ++i)
    result.push_back({kernels[i].name, traffic_of(machine, kernels[i], dirty[i], heads, method.cache)});
  return result;
}

Traffic standard_traffic(const Machine& machine, const AttentionShape& shape, const StandardMethod& method, Pass pass) {
  Traffic sum;
  sum.levels.resize(machine.levels.size());
  for (const StandardKernel& kernel : standard_kernels(machine, shape, method, pass)) sum.add(kernel.traffic);
  // Forward S and P, backward P, dP and dS; in place one less.
  const double matrices = (pass == Pass::forward ? 2 : 3) - (method.textbook ? 0 : 1);
  sum.extra_bytes = matrices * sizes_of(shape, method.score_dtype).scores;
  return sum;
}

}  // namespace onchip::model
