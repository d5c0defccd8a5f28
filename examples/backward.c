/* The gradient of the values from C. Queries of zero weigh all keys alike, so that with dout of ones dv[j] is the sum
 * of 1/(i + 1) over the queries i that see key j. */
#include <math.h>
#include <onchip/onchip.h>
#include <stdio.h>

enum { kSeqlen = 40, kHeadDim = 8 };
static float q[kSeqlen * kHeadDim], k[kSeqlen * kHeadDim], v[kSeqlen * kHeadDim], o[kSeqlen * kHeadDim], lse[kSeqlen];
static float dout[kSeqlen * kHeadDim], dv[kSeqlen * kHeadDim];

int main(void) {
  const int64_t shape[] = {1, kSeqlen, 1, kHeadDim}, lse_shape[] = {1, 1, kSeqlen};
  for (int i = 0; i < kSeqlen * kHeadDim; ++i) dout[i] = 1.0f;

  onchip_attention attention = onchip_attention_init();
  attention.q = onchip_contiguous(q, ONCHIP_F32, 4, shape);
  attention.k = onchip_contiguous(k, ONCHIP_F32, 4, shape);
  attention.v = onchip_contiguous(v, ONCHIP_F32, 4, shape);
  attention.o = onchip_contiguous(o, ONCHIP_F32, 4, shape);
  attention.lse = onchip_contiguous(lse, ONCHIP_F32, 3, lse_shape);
  attention.dout = onchip_contiguous(dout, ONCHIP_F32, 4, shape);
  attention.dv = onchip_contiguous(dv, ONCHIP_F32, 4, shape);
  attention.causal = 1;
  if (onchip_forward(&attention, NULL, 0, NULL) != ONCHIP_OK ||
      onchip_backward(&attention, NULL, 0, NULL) != ONCHIP_OK) {
    fprintf(stderr, "%s\n", onchip_last_error());
    return 1;
  }
  double expected = 0, difference = 0;
  for (int j = kSeqlen - 1; j >= 0; --j) {
    expected += 1.0 / (j + 1);
    difference = fmax(difference, fabs(dv[j * kHeadDim] - expected));
  }
  printf("dv[0] = %.5f, expected %.5f\n", dv[0], expected);
  return difference < 1e-5 ? 0 : 1;
}
