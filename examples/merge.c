/* Merging from C: the softmax denominators of the parts are exp(lse), here 1 and 3. */
#include <math.h>
#include <onchip/onchip.h>
#include <stdio.h>

int main(void) {
  const int64_t shape[] = {1, 1, 1, 2}, lse_shape[] = {1, 1, 1};
  float o_first[] = {1, 10}, o_second[] = {3, 20}, o[2];
  float lse_first = logf(1), lse_second = logf(3), lse = 0;
  const onchip_tensor o_parts[] = {onchip_contiguous(o_first, ONCHIP_F32, 4, shape),
                                   onchip_contiguous(o_second, ONCHIP_F32, 4, shape)};
  const onchip_tensor lse_parts[] = {onchip_contiguous(&lse_first, ONCHIP_F32, 3, lse_shape),
                                     onchip_contiguous(&lse_second, ONCHIP_F32, 3, lse_shape)};
  const onchip_tensor o_tensor = onchip_contiguous(o, ONCHIP_F32, 4, shape);
  const onchip_tensor lse_tensor = onchip_contiguous(&lse, ONCHIP_F32, 3, lse_shape);
  if (onchip_merge(o_parts, lse_parts, 2, &o_tensor, &lse_tensor) != ONCHIP_OK) {
    fprintf(stderr, "%s\n", onchip_last_error());
    return 1;
  }
  printf("o = %.4f %.4f, exp(lse) = %.4f; expected 2.5000 17.5000 4.0000\n", o[0], o[1], exp(lse));
  return fabs(o[0] - 2.5) < 1e-6 && fabs(o[1] - 17.5) < 1e-5 && fabs(exp(lse) - 4) < 1e-5 ? 0 : 1;
}
