/* Generation from C: one token a step into a cache of pages quantised to 8 bits, with a scale per token that onchip
 * computes. Queries of zero weigh all keys alike, so that each output is the mean of the values so far. */
#include <math.h>
#include <onchip/onchip.h>
#include <stdio.h>

enum { kPages = 8, kPageSize = 4, kHeads = 2, kHeadDim = 16, kTokens = 10 };
static int8_t k_pages[kPages * kPageSize * kHeads * kHeadDim], v_pages[kPages * kPageSize * kHeads * kHeadDim];
static float k_scale[kPages * kPageSize * kHeads], v_scale[kPages * kPageSize * kHeads];
static float q[kHeads * kHeadDim], k_new[kHeads * kHeadDim], v_new[kHeads * kHeadDim], o[kHeads * kHeadDim];

int main(void) {
  const int64_t pool[] = {kPages, kPageSize, kHeads, kHeadDim}, token[] = {1, 1, kHeads, kHeadDim};
  const int64_t table_shape[] = {1, 3}, used_shape[] = {1};
  const int32_t pages[] = {6, 1, 3}; /* where keys 0–3, 4–7 and 8–11 live */
  int32_t used = 0;

  onchip_attention attention = onchip_attention_init();
  attention.q = onchip_contiguous(q, ONCHIP_F32, 4, token);
  attention.k = onchip_contiguous(k_pages, ONCHIP_I8, 4, pool);
  attention.v = onchip_contiguous(v_pages, ONCHIP_I8, 4, pool);
  attention.k_scale = onchip_contiguous(k_scale, ONCHIP_F32, 3, pool); /* pool's shape without the last dimension */
  attention.v_scale = onchip_contiguous(v_scale, ONCHIP_F32, 3, pool);
  attention.page_table = onchip_contiguous(pages, ONCHIP_I32, 2, table_shape);
  attention.seqused_k = onchip_contiguous(&used, ONCHIP_I32, 1, used_shape);
  attention.o = onchip_contiguous(o, ONCHIP_F32, 4, token);
  onchip_decode_step step = onchip_decode_step_init();
  step.attention = &attention;
  step.k_new = onchip_contiguous(k_new, ONCHIP_F32, 4, token);
  step.v_new = onchip_contiguous(v_new, ONCHIP_F32, 4, token);

  double sum = 0, difference = 0;
  for (; used < kTokens; ++used) {
    for (int i = 0; i < kHeads * kHeadDim; ++i) k_new[i] = (float)i, v_new[i] = 0.37f * (float)(used + 1);
    if (onchip_decode(&step, NULL, 0, NULL) != ONCHIP_OK) {
      fprintf(stderr, "%s\n", onchip_last_error());
      return 1;
    }
    sum += v_new[0];
    difference = fmax(difference, fabs(o[0] - sum / (used + 1)));
  }
  printf("after %d tokens o[0] = %.5f, expected %.5f\n", (int)used, o[0], sum / kTokens);
  return difference < 1e-5 ? 0 : 1;
}
