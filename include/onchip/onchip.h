/* onchip: exact attention whose N×N scores never leave the chip. The C interface (C11; also reads as C++).
 *
 * What is computed is specified in docs/semantics.md; whole programs are in examples/. The caller owns all memory.
 * Functions may be called from any number of threads at once. Each returns a status; when that is not ONCHIP_OK,
 * onchip_last_error() holds one sentence that names the argument, the value and what was expected, and no result was
 * written. Structures that may grow begin with struct_size, which their ..._init function sets: begin with it, then
 * set what you need. A pointer to a structure is only read during the call. */
#ifndef ONCHIP_ONCHIP_H_
#define ONCHIP_ONCHIP_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(ONCHIP_API)
#if defined(ONCHIP_STATIC)
#define ONCHIP_API
#else
#define ONCHIP_API __attribute__((visibility("default")))
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum onchip_status {
  ONCHIP_OK = 0,
  ONCHIP_INVALID_ARGUMENT = 1,
  ONCHIP_UNSUPPORTED = 2,         /* no implementation accepts the problem */
  ONCHIP_WORKSPACE_TOO_SMALL = 3, /* the workspace, or the buffer for text */
  ONCHIP_OUT_OF_MEMORY = 4,
  ONCHIP_INTERNAL = 5
} onchip_status;

/* Element types. e4m3 is the finite-only OCP type (largest value 448), e5m2 has infinities (57344). */
enum {
  ONCHIP_F64 = 0,
  ONCHIP_F32 = 1,
  ONCHIP_BF16 = 2,
  ONCHIP_F16 = 3,
  ONCHIP_E4M3 = 4,
  ONCHIP_E5M2 = 5,
  ONCHIP_I8 = 6,
  ONCHIP_I32 = 7,
  ONCHIP_BOOL = 8
};

/* Who computes: the fastest that accepts the problem, the tiled CPU backend, textbook attention, an NVIDIA GPU. */
enum { ONCHIP_BACKEND_AUTO = 0, ONCHIP_BACKEND_CPU = 1, ONCHIP_BACKEND_STANDARD = 2, ONCHIP_BACKEND_CUDA = 3 };

/* Where query i stands among the keys: at i + seqlen_k − seqlen_q, or at i. */
enum { ONCHIP_BOTTOM_RIGHT = 0, ONCHIP_TOP_LEFT = 1 };

enum { ONCHIP_PASS_FORWARD = 0, ONCHIP_PASS_BACKWARD = 1 };

enum { ONCHIP_EXPLAIN_TEXT = 0, ONCHIP_EXPLAIN_JSON = 1 };

/* A view of memory that the caller owns; one whose bytes are all zero (rank 0) is absent. Strides count elements, may
 * be zero or negative for inputs, and the last one is 1 (except in dimensions of size 0 or 1). This layout never
 * changes. */
typedef struct onchip_tensor {
  void* data;    /* inputs are only read; may be NULL when planning, or when there are no elements */
  int32_t dtype; /* ONCHIP_F32, … */
  int32_t rank;  /* 0 (absent) to 4 */
  int64_t shape[4];
  int64_t stride[4];
} onchip_tensor;

/* A row-major tensor of 1 to 4 dimensions. */
ONCHIP_API onchip_tensor onchip_contiguous(const void* data, int32_t dtype, int32_t rank, const int64_t* shape);

/* One attention problem. */
typedef struct onchip_attention {
  size_t struct_size;

  /* Inputs                 shape                                                               type */
  onchip_tensor q;    /* [B, Sq, Hq, D] or packed [total_q, Hq, D]                          f64 f32 bf16 f16 e4m3 */
  onchip_tensor k;    /* [B, Sk, Hk, D], packed [total_k, Hk, D], paged [pages, page, Hk, D]  as q, or i8 e4m3 e5m2 */
  onchip_tensor v;    /* as k, last dimension Dv                                            as k */
  onchip_tensor bias; /* [1|B, 1|Hq, Sq, Sk]                                       f32 bf16 f16 (f64 with f64 q) */
  onchip_tensor mask; /* [1|B, 1|Hq, Sq, Sk], true = may attend                             bool */
  onchip_tensor alibi_slopes;     /* [Hq] or [B, Hq]                                                    f32 */
  onchip_tensor sink;             /* [Hq]: one more logit in each denominator                           f32 */
  onchip_tensor cu_seqlens_q;     /* [B+1]: q is packed                                                 i32 */
  onchip_tensor cu_seqlens_k;     /* [B+1]: k and v are packed                                          i32 */
  onchip_tensor seqused_k;        /* [B]: keys of each sequence that exist                              i32 */
  onchip_tensor page_table;       /* [B, max_pages]: k and v are pools of pages                         i32 */
  onchip_tensor k_scale, v_scale; /* [1], [Hk], [B, Hk] or per token (k without D): value = scale·stored  f32 */

  /* Results of the forward pass, inputs of the backward pass */
  onchip_tensor o;   /* as q, last dimension Dv                                           as q (bf16 for e4m3) */
  onchip_tensor lse; /* [B, Hq, Sq] or packed [Hq, total_q]; optional going forward       f32 (f64 for f64) */

  /* Backward: dout in, any of the gradients out */
  onchip_tensor dout;       /* as o */
  onchip_tensor dq, dk, dv; /* as q, k, v */
  onchip_tensor dbias;      /* as bias, summed where bias broadcasts */
  onchip_tensor dsink;      /* as sink */

  double softmax_scale;      /* looked at where has_softmax_scale is not 0; otherwise 1/√D */
  double softcap;            /* 0: none */
  int64_t window_left;       /* −1: no bound */
  int64_t window_right;      /* −1: no bound */
  int32_t has_softmax_scale; /* 0 or 1 */
  int32_t causal;            /* 0 or 1 */
  int32_t alignment;         /* ONCHIP_BOTTOM_RIGHT, … */
  int32_t backend;           /* ONCHIP_BACKEND_AUTO, … */
  int32_t num_threads;       /* CPU threads; 0: all that this process may use */
  int32_t allow_tf32;        /* 1: f32 products may round their factors to TF32 where that is faster */
  const char* at_least;      /* strict mode: refuse implementations that rank below the named one; NULL: none */
  void* stream;              /* CUstream that the call is queued on, without waiting for it; NULL: the default stream */
  int64_t max_seqlen_q;      /* longest sequences, for tensors in device memory, where lengths cannot be looked at; */
  int64_t max_seqlen_k;      /* 0: as long as shapes allow */
  int32_t device;            /* CUDA device whose memory holds all tensors and the workspace; −1: host memory */
  int32_t batch_invariant;   /* 1: a sequence's results do not depend on the others of its batch, to the last bit */
} onchip_attention;

/* Nothing present, no bounds, the defaults. */
static inline onchip_attention onchip_attention_init(void) {
  onchip_attention attention;
  memset(&attention, 0, sizeof attention);
  attention.struct_size = sizeof attention;
  attention.window_left = -1;
  attention.window_right = -1;
  attention.device = -1;
  return attention;
}

/* One step of generation: appends new keys and values to the cache, then attends to all of it. */
typedef struct onchip_decode_step {
  size_t struct_size;
  /* k and v are the cache (written), seqused_k the lengths before the append, which stay as they are. Attends to
   * seqused_k + Snew keys. Two sequences that share memory must not both write to it: a page belongs to one of them. */
  const onchip_attention* attention;
  /* [B, Snew, Hk, D], [B, Snew, Hk, Dv], packed [total_q, Hk, D], [total_q, Hk, Dv] where q is packed; type of q. Both
   * absent: nothing is appended. */
  onchip_tensor k_new, v_new;
  /* Rotary embedding of queries and new keys: [max_position, R/2], R ≤ D, f32 or the type of q; both absent: none. */
  onchip_tensor rotary_cos, rotary_sin;
  int32_t rotary_interleaved; /* 1: pairs (2c, 2c+1); 0: pairs (c, c + R/2) */
  int32_t reserved;           /* 0 */
} onchip_decode_step;

static inline onchip_decode_step onchip_decode_step_init(void) {
  onchip_decode_step step;
  memset(&step, 0, sizeof step);
  step.struct_size = sizeof step;
  return step;
}

/* What will run, or ran. Everything but struct_size is written. */
typedef struct onchip_plan_info {
  size_t struct_size;
  size_t workspace_bytes;  /* to be given to the call, aligned to 64 bytes */
  char implementation[64]; /* its name, with a closing 0 */
  int32_t pass;
  int32_t backend;
  int32_t num_threads;
  int32_t num_rejections; /* implementations that do not run: onchip_explain has the reasons */
  int64_t tile_m;         /* query rows a tile; 0: no such tile */
  int64_t tile_n;         /* keys a tile; 0: no such tile */
  int64_t num_splits;     /* parts of the key range whose results are merged in fixed order */
  int64_t split_size;     /* keys in each part; 0: all */
  double flops;           /* predicted, as are the bytes */
  double main_memory_read_bytes;
  double main_memory_write_bytes;
} onchip_plan_info;

static inline onchip_plan_info onchip_plan_info_init(void) {
  onchip_plan_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  return info;
}

/* Validates the problem and chooses an implementation. Tensor data may be NULL, lengths are then taken as full. */
ONCHIP_API onchip_status onchip_plan(const onchip_attention* problem, int32_t pass, onchip_plan_info* info);
ONCHIP_API onchip_status onchip_plan_decode(const onchip_decode_step* step, onchip_plan_info* info);

/* Forward writes o and, where present, lse; backward the gradients that are present, from q, k, v, o, lse and dout.
 * workspace: workspace_bytes bytes, at least the plan's, aligned to 64. NULL with 0 bytes: the call allocates what it
 * needs and frees it. info may be NULL. */
ONCHIP_API onchip_status onchip_forward(const onchip_attention* problem, void* workspace, size_t workspace_bytes,
                                        onchip_plan_info* info);
ONCHIP_API onchip_status onchip_backward(const onchip_attention* problem, void* workspace, size_t workspace_bytes,
                                         onchip_plan_info* info);
ONCHIP_API onchip_status onchip_decode(const onchip_decode_step* step, void* workspace, size_t workspace_bytes,
                                       onchip_plan_info* info);

/* Merges num_parts results over disjoint sets of keys, in the order given. o and its parts: [B, S, H, D] or packed
 * [T, H, D]; lse and its parts: [B, H, S] or packed [H, T] in f32 or f64. lse may be NULL. An output may be exactly one
 * of the parts, and may not overlap them otherwise. */
ONCHIP_API onchip_status onchip_merge(const onchip_tensor* o_parts, const onchip_tensor* lse_parts, size_t num_parts,
                                      const onchip_tensor* o, const onchip_tensor* lse);
/* The same in the memory of a CUDA device, queued on a CUstream: up to 32 parts, no f64. */
ONCHIP_API onchip_status onchip_merge_on_device(const onchip_tensor* o_parts, const onchip_tensor* lse_parts,
                                                size_t num_parts, const onchip_tensor* o, const onchip_tensor* lse,
                                                int32_t device, void* stream);

/* The plan with every rejection, for people (ONCHIP_EXPLAIN_TEXT) or programs (ONCHIP_EXPLAIN_JSON), as a string with a
 * closing 0. *needed_bytes, where not NULL, becomes its size, the 0 included. buffer NULL with 0 bytes only asks for
 * that; a buffer that is too small is left alone. */
ONCHIP_API onchip_status onchip_explain(const onchip_attention* problem, int32_t pass, int32_t format, char* buffer,
                                        size_t buffer_bytes, size_t* needed_bytes);

ONCHIP_API onchip_status onchip_explain_decode(const onchip_decode_step* step, int32_t format, char* buffer,
                                               size_t buffer_bytes, size_t* needed_bytes);

/* "MAJOR.MINOR.PATCH" */
ONCHIP_API const char* onchip_version(void);

/* Why the last call in this thread failed; "" when it did not. Valid until the thread's next call. */
ONCHIP_API const char* onchip_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* ONCHIP_ONCHIP_H_ */
