/* The C header in plain C11: attention over one query and two keys, decoded, merged and differentiated. */
#include <math.h>
#include <string.h>

#include "onchip/onchip.h"

static onchip_tensor matrix(float* data, int64_t rows) {
  const int64_t shape[] = {1, rows, 1, 2};
  return onchip_contiguous(data, ONCHIP_F32, 4, shape);
}

/* Returns the line of the first check that fails, 0 when all hold. Called from c_api_test.cpp. */
int onchip_plain_c(void);

int onchip_plain_c(void) {
  float q[2] = {1, 0}, k[4] = {1, 0, 0, 1}, v[4] = {2, 4, 6, 8}, o[2], lse[1];
  const int64_t lse_shape[] = {1, 1, 1};
  onchip_attention attention = onchip_attention_init();
  attention.q = matrix(q, 1);
  attention.k = matrix(k, 2);
  attention.v = matrix(v, 2);
  attention.o = matrix(o, 1);
  attention.lse = onchip_contiguous(lse, ONCHIP_F32, 3, lse_shape);
  attention.has_softmax_scale = 1;
  attention.softmax_scale = 1.0;
  onchip_plan_info info = onchip_plan_info_init();
  if (onchip_forward(&attention, NULL, 0, &info) != ONCHIP_OK) return __LINE__;
  if (strlen(info.implementation) == 0 || info.num_threads < 1) return __LINE__;
  const double p = exp(1.0) / (exp(1.0) + 1.0);
  if (fabs(o[0] - (2 * p + 6 * (1 - p))) > 1e-5 || fabs(o[1] - (4 * p + 8 * (1 - p))) > 1e-5) return __LINE__;
  if (fabs(lse[0] - log(exp(1.0) + 1.0)) > 1e-6) return __LINE__;

  float dout[2] = {1, 0}, dv[4] = {0};
  attention.dout = matrix(dout, 1);
  attention.dv = matrix(dv, 2);
  if (onchip_backward(&attention, NULL, 0, NULL) != ONCHIP_OK) return __LINE__;
  if (fabs(dv[0] - p) > 1e-5 || fabs(dv[2] - (1 - p)) > 1e-5 || fabs(dv[1]) > 1e-6) return __LINE__;

  onchip_tensor o_parts[2], lse_parts[2];
  float part_o[2][2], part_lse[2];
  for (int part = 0; part < 2; ++part) {
    attention.k = matrix(k + 2 * part, 1);
    attention.v = matrix(v + 2 * part, 1);
    attention.o = o_parts[part] = matrix(part_o[part], 1);
    attention.lse = lse_parts[part] = onchip_contiguous(&part_lse[part], ONCHIP_F32, 3, lse_shape);
    if (onchip_forward(&attention, NULL, 0, NULL) != ONCHIP_OK) return __LINE__;
  }
  float merged[2];
  const onchip_tensor result = matrix(merged, 1);
  if (onchip_merge(o_parts, lse_parts, 2, &result, NULL) != ONCHIP_OK) return __LINE__;
  if (fabs(merged[0] - o[0]) > 1e-5 || fabs(merged[1] - o[1]) > 1e-5) return __LINE__;

  float cache_k[4] = {1, 0, NAN, NAN}, cache_v[4] = {2, 4, NAN, NAN}, decoded[2];
  int32_t used[1] = {1};
  const int64_t used_shape[] = {1};
  attention.k = matrix(cache_k, 2);
  attention.v = matrix(cache_v, 2);
  attention.o = matrix(decoded, 1);
  attention.seqused_k = onchip_contiguous(used, ONCHIP_I32, 1, used_shape);
  onchip_decode_step step = onchip_decode_step_init();
  step.attention = &attention;
  step.k_new = matrix(k + 2, 1);
  step.v_new = matrix(v + 2, 1);
  if (onchip_plan_decode(&step, &info) != ONCHIP_OK) return __LINE__;
  if (onchip_decode(&step, NULL, 0, &info) != ONCHIP_OK) return __LINE__;
  if (fabs(decoded[0] - o[0]) > 1e-5 || fabs(decoded[1] - o[1]) > 1e-5) return __LINE__;
  if (memcmp(cache_k, k, sizeof k) != 0 || memcmp(cache_v, v, sizeof v) != 0 || used[0] != 1) return __LINE__;
  return 0;
}
