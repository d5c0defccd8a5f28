// onchip: exact attention whose N×N scores never leave the chip. The C++ interface.
//
// Shapes, types and the function itself are specified in docs/semantics.md. In short, for query i and key j
//   s = softmax_scale·(q_i·k_j);  s = softcap·tanh(s/softcap);  s += bias_ij − slope·|i + shift − j|;
//   s = −∞ where mask or window hides j;  o_i = Σ_j softmax(s)_j v_j;  lse_i = ln(Σ_j exp(s_j) + exp(sink)).
//
// The caller owns all memory, scratch included: plan() says how much workspace a call needs. Functions may be called
// from any number of threads at once. They report failure by throwing onchip::Error and then have written no result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(ONCHIP_STATIC)
#define ONCHIP_API
#else
#define ONCHIP_API __attribute__((visibility("default")))
#endif

namespace onchip {

/// Element types. `e4m3` is the finite-only OCP type (largest value 448), `e5m2` has infinities (57344).
enum class DType : std::int32_t { f64, f32, bf16, f16, e4m3, e5m2, i8, i32, boolean };

/// A view of memory that the caller owns. A tensor with rank 0 is absent. Strides count elements, may be zero or
/// negative for inputs, and the last one is 1 (except in dimensions of size 0 or 1, where strides are not looked at).
struct Tensor {
  void* data = nullptr;  ///< inputs are only read; may be null when planning, or when the tensor has no elements
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, 4> shape{};
  std::array<std::int64_t, 4> stride{};

  bool present() const { return rank > 0; }
};

/// A row-major tensor of the given shape (rank 1 to 4) over `data`.
ONCHIP_API Tensor contiguous(void* data, DType dtype, std::initializer_list<std::int64_t> shape);
/// The same for an input, which is only read.
ONCHIP_API Tensor contiguous(const void* data, DType dtype, std::initializer_list<std::int64_t> shape);

/// Who computes. `automatic` takes the fastest implementation that accepts the problem; `cpu` is the tiled CPU
/// backend; `standard` is textbook attention, which materialises the scores; `cuda` is an NVIDIA GPU.
enum class Backend : std::int32_t { automatic, cpu, standard, cuda };

/// Where query i stands among the keys: at i + seqlen_k − seqlen_q (`bottom_right`: the last query sees the last key)
/// or at i (`top_left`, PyTorch's is_causal). Causal masks, windows and ALiBi distances all use this position.
enum class Alignment : std::int32_t { bottom_right, top_left };

enum class Pass : std::int32_t { forward, backward };

/// One attention problem. Absent optional tensors keep their default. B, Sq, Sk and packed lengths may be 0.
struct Attention {
  // Inputs                   shape                                                              type
  Tensor q;     // [B, Sq, Hq, D] or packed [total_q, Hq, D]                          f64 f32 bf16 f16 e4m3
  Tensor k;     // [B, Sk, Hk, D], packed [total_k, Hk, D], paged [pages, page, Hk, D]  as q, or i8 e4m3 e5m2
  Tensor v;     // as k, last dimension Dv                                            as k
  Tensor bias;  // [1|B, 1|Hq, Sq, Sk]                                                f32 bf16 f16 (f64 with f64 q)
  Tensor mask;  // [1|B, 1|Hq, Sq, Sk], true = may attend                             boolean
  Tensor alibi_slopes;      // [Hq] or [B, Hq]                                                    f32
  Tensor sink;              // [Hq]: one more logit in each denominator                           f32
  Tensor cu_seqlens_q;      // [B+1]: q is packed                                                 i32
  Tensor cu_seqlens_k;      // [B+1]: k and v are packed                                          i32
  Tensor seqused_k;         // [B]: keys of each sequence that exist                              i32
  Tensor page_table;        // [B, max_pages]: k and v are pools of pages                         i32
  Tensor k_scale, v_scale;  // [1], [Hk], [B, Hk] or per token (k without D): value = scale·stored  f32

  // Results of the forward pass, inputs of the backward pass
  Tensor o;    // as q, last dimension Dv                                            as q (bf16 for e4m3)
  Tensor lse;  // [B, Hq, Sq] or packed [Hq, total_q]; optional going forward        f32 (f64 for f64)

  // Backward: dout in, any of the gradients out
  Tensor dout;        // as o
  Tensor dq, dk, dv;  // as q, k, v
  Tensor dbias;       // as bias, summed where bias broadcasts
  Tensor dsink;       // as sink

  std::optional<double> softmax_scale;  ///< default 1/√D; any finite value
  double softcap = 0.0;                 ///< 0: none
  bool causal = false;
  std::int64_t window_left = -1;  ///< −1: no bound
  std::int64_t window_right = -1;
  Alignment alignment = Alignment::bottom_right;

  Backend backend = Backend::automatic;
  std::string at_least;  ///< strict mode: refuse implementations that rank below the named one
  int num_threads = 0;   ///< CPU threads; 0: all that this process may use

  /// A sequence's results do not depend on the others of its batch, to the last bit; slower where batches are small or
  /// mixed. (Sums over the batch do: dsink, dbias that broadcasts over it, gradients of shared pages.)
  bool batch_invariant = false;
  bool allow_tf32 = false;  ///< f32 products may round their factors to TF32 where that is faster
  int device = -1;          ///< CUDA device whose memory holds every tensor and the workspace; −1: host memory
  void* stream = nullptr;   ///< CUstream that the call is queued on, without waiting for it; null: the default stream
  /// Longest sequences, for tensors in device memory, where lengths cannot be looked at; 0: as long as shapes allow.
  std::int64_t max_seqlen_q = 0, max_seqlen_k = 0;
};

/// Tile sizes an implementation runs with; 0 where it has no such tile.
struct TileConfig {
  std::int64_t tile_m = 0;      ///< query rows a tile
  std::int64_t tile_n = 0;      ///< keys a tile
  std::int64_t num_splits = 1;  ///< parts of the key range whose partial results are merged in fixed order
  std::int64_t split_size = 0;  ///< keys in each part; 0: all, or as many in each
  std::int64_t heads_per_tile =
      0;  ///< query heads that share a tile's rows and read its keys once; 0: all of a KV head
};

/// What the traffic model expects one call to do (docs/traffic.md).
struct Prediction {
  double flops = 0;
  double main_memory_read_bytes = 0;
  double main_memory_write_bytes = 0;
};

struct Rejection {
  std::string implementation;
  std::string reason;
};

/// What will run, with what, and why nothing faster does.
struct Plan {
  Pass pass = Pass::forward;
  std::string implementation;
  Backend backend = Backend::automatic;
  TileConfig tile;
  int num_threads = 1;
  std::size_t workspace_bytes = 0;  ///< to be given to forward() or backward(), aligned to 64 bytes
  Prediction predicted;
  std::vector<Rejection> rejections;  ///< fastest first, the implementation left out
  int num_faster = 0;                 ///< how many of them rank above it
};

enum class StatusCode : std::int32_t {
  ok,
  invalid_argument,
  unsupported,
  workspace_too_small,
  out_of_memory,
  internal
};

/// Thrown by every function of this header; what() is one sentence that names the argument, the value and what was
/// expected.
class ONCHIP_API Error : public std::runtime_error {
 public:
  Error(StatusCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  StatusCode code() const { return code_; }

 private:
  StatusCode code_;
};

/// Validates the problem and chooses an implementation. Tensor data may be null, lengths are then taken as full.
ONCHIP_API Plan plan(const Attention& problem, Pass pass);

/// The plan as text for people, or as JSON (schema in docs/explain.md).
ONCHIP_API std::string explain(const Attention& problem, Pass pass);
ONCHIP_API std::string explain_json(const Attention& problem, Pass pass);

/// Writes o and, where present, lse. `workspace` needs plan().workspace_bytes bytes; the overload without one
/// allocates it for the call. Returns the plan that ran.
ONCHIP_API Plan forward(const Attention& problem, std::span<std::byte> workspace);
ONCHIP_API Plan forward(const Attention& problem);

/// Writes the gradients that are present from q, k, v, o, lse and dout. Same bits every time.
ONCHIP_API Plan backward(const Attention& problem, std::span<std::byte> workspace);
ONCHIP_API Plan backward(const Attention& problem);

/// Rotary embedding of the queries and of the keys that decode() appends: dimension pairs (2c, 2c+1) when
/// interleaved, (c, c + R/2) otherwise, turned by the angle of the row's position among the keys: seqused_k[b] + i for
/// new key i, and for query i where the mask places it, which is the same when there is one query a new key.
/// (Su et al. 2021, eq. 34)
struct Rotary {
  Tensor cos, sin;  // [max_position, R/2], R ≤ D even; f32, or the type of q
  bool interleaved = false;
};

/// One step of generation: appends new keys and values to the cache, then attends to all of it.
struct Decode {
  /// k and v are the cache (written), seqused_k the lengths before the append, which stay as they are. Attends to
  /// seqused_k + Snew keys. Two sequences that share memory must not both write to it: a page belongs to one of them.
  Attention attention;
  /// [B, Snew, Hk, D], [B, Snew, Hk, Dv], packed [total_q, Hk, D], [total_q, Hk, Dv] where q is packed; type of q. Both
  /// absent: nothing is appended.
  Tensor k_new, v_new;
  Rotary rotary;  // absent cos: none
};

ONCHIP_API Plan plan(const Decode& problem);
ONCHIP_API std::string explain(const Decode& problem);
ONCHIP_API std::string explain_json(const Decode& problem);
/// Rows are computed in f32 (f64 for f64) and rounded once, to the type of q or of the cache. A quantised cache is
/// written with the given scales (nearest even, saturating; finite, not 0), or, where they are per token, with scales
/// that it computes and writes: largest magnitude over the type's largest value, 1 for a row of zeros, NaN for one with
/// NaN or infinity.
ONCHIP_API Plan decode(const Decode& problem, std::span<std::byte> workspace);
ONCHIP_API Plan decode(const Decode& problem);

/// Merges results over disjoint sets of keys, in the order given. o and its parts: [B, S, H, D] or packed [T, H, D] in
/// f64, f32, bf16 or f16; lse and its parts: [B, H, S] or packed [H, T] in f32 or f64, no strides prescribed; every
/// tensor may have a type of its own. A part whose lse is −∞ has no keys, and its o is not looked at. Sums are f32, or
/// f64 where any tensor is. `lse` may be absent. An output may be exactly one of the parts, and may not overlap them
/// otherwise. At most one part may have counted the sink.
ONCHIP_API void merge(std::span<const Tensor> o_parts, std::span<const Tensor> lse_parts, const Tensor& o,
                      const Tensor& lse);
/// The same in the memory of a CUDA device, queued on a CUstream: up to 32 parts, no f64.
ONCHIP_API void merge_on_device(std::span<const Tensor> o_parts, std::span<const Tensor> lse_parts, const Tensor& o,
                                const Tensor& lse, int device, void* stream = nullptr);

/// "MAJOR.MINOR.PATCH"
ONCHIP_API const char* version();
/// A type's name ("bf16") and size in bytes.
ONCHIP_API const char* name(DType dtype);
ONCHIP_API std::size_t size_of(DType dtype);

}  // namespace onchip
