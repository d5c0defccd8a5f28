/* Causal attention from C, with workspace of the caller's. Queries of zero weigh all keys alike, so that row i of the
 * output is the mean of the first i + 1 values. */
#include <math.h>
#include <onchip/onchip.h>
#include <stdio.h>
#include <stdlib.h>

enum { kSeqlen = 100, kHeads = 2, kHeadDim = 32 };
static float q[kSeqlen * kHeads * kHeadDim], k[kSeqlen * kHeads * kHeadDim], v[kSeqlen * kHeads * kHeadDim];
static float o[kSeqlen * kHeads * kHeadDim];

int main(void) {
  const int64_t shape[] = {1, kSeqlen, kHeads, kHeadDim};
  for (int i = 0; i < kSeqlen * kHeads * kHeadDim; ++i) v[i] = (float)(i / (kHeads * kHeadDim));

  onchip_attention attention = onchip_attention_init();
  attention.q = onchip_contiguous(q, ONCHIP_F32, 4, shape);
  attention.k = onchip_contiguous(k, ONCHIP_F32, 4, shape);
  attention.v = onchip_contiguous(v, ONCHIP_F32, 4, shape);
  attention.o = onchip_contiguous(o, ONCHIP_F32, 4, shape);
  attention.causal = 1;

  onchip_plan_info plan = onchip_plan_info_init();
  onchip_status status = onchip_plan(&attention, ONCHIP_PASS_FORWARD, &plan);
  const size_t bytes = (plan.workspace_bytes + 63) / 64 * 64;
  void* workspace = bytes > 0 ? aligned_alloc(64, bytes) : NULL;
  if (status == ONCHIP_OK) status = onchip_forward(&attention, workspace, bytes, &plan);
  free(workspace);
  if (status != ONCHIP_OK) {
    fprintf(stderr, "%s\n", onchip_last_error());
    return 1;
  }
  const float last = o[(kSeqlen - 1) * kHeads * kHeadDim];
  printf("onchip %s, %s: the last row is %.3f, expected 49.500\n", onchip_version(), plan.implementation, last);
  return fabs(last - 49.5) < 1e-4 ? 0 : 1;
}
