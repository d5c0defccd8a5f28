#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "onchip/onchip.h"
#include "onchip/onchip.hpp"

extern "C" int onchip_plain_c(void);

namespace {

/// [1, 3, 2, 4] attention over ones.
struct Sample {
  Sample() : ones(24, 1.0f), o(24), lse(6), attention(onchip_attention_init()), step(onchip_decode_step_init()) {
    attention.q = attention.k = attention.v = tensor(ones.data(), {1, 3, 2, 4});
    attention.o = tensor(o.data(), {1, 3, 2, 4});
    attention.lse = tensor(lse.data(), {1, 2, 3});
    step.attention = &attention;
  }
  static onchip_tensor tensor(float* data, std::vector<std::int64_t> shape) {
    return onchip_contiguous(data, ONCHIP_F32, static_cast<std::int32_t>(shape.size()), shape.data());
  }

  std::vector<float> ones, o, lse;
  onchip_attention attention;
  onchip_decode_step step;
};

void expect_error(onchip_status got, onchip_status status, const std::string& message) {
  EXPECT_EQ(got, status);
  EXPECT_EQ(onchip_last_error(), message);
}

void expect_invalid(onchip_status got, const std::string& message) {
  expect_error(got, ONCHIP_INVALID_ARGUMENT, message);
}

TEST(CApi, WorksFromPlainC) { EXPECT_EQ(onchip_plain_c(), 0) << "line of plain_c.c; " << onchip_last_error(); }

TEST(CApi, ContiguousFillsStridesAsCppDoes) {
  const std::int64_t shape[] = {2, 3, 5, 7};
  const onchip_tensor c = onchip_contiguous(shape, ONCHIP_BF16, 4, shape);
  const onchip::Tensor cpp = onchip::contiguous(shape, onchip::DType::bf16, {2, 3, 5, 7});
  EXPECT_EQ(c.data, cpp.data);
  EXPECT_EQ(c.dtype, static_cast<std::int32_t>(cpp.dtype));
  for (int d = 0; d < 4; ++d) {
    EXPECT_EQ(c.shape[d], cpp.shape[d]);
    EXPECT_EQ(c.stride[d], cpp.stride[d]);
  }
  EXPECT_EQ(onchip_contiguous(nullptr, ONCHIP_F32, 9, shape).rank, 9);  // refused where it is used
}

TEST(CApi, PlanTellsWhatCppTells) {
  Sample s;
  onchip_plan_info info = onchip_plan_info_init();
  ASSERT_EQ(onchip_plan(&s.attention, ONCHIP_PASS_FORWARD, &info), ONCHIP_OK) << onchip_last_error();
  onchip::Attention attention;
  attention.q = attention.k = attention.v = onchip::contiguous(s.ones.data(), onchip::DType::f32, {1, 3, 2, 4});
  const onchip::Plan plan = onchip::plan(attention, onchip::Pass::forward);
  EXPECT_EQ(info.struct_size, sizeof info);
  EXPECT_EQ(info.implementation, plan.implementation);
  EXPECT_EQ(info.workspace_bytes, plan.workspace_bytes);
  EXPECT_EQ(info.pass, ONCHIP_PASS_FORWARD);
  EXPECT_EQ(info.backend, static_cast<std::int32_t>(plan.backend));
  EXPECT_EQ(info.num_threads, plan.num_threads);
  EXPECT_EQ(info.num_rejections, static_cast<std::int32_t>(plan.rejections.size()));
  EXPECT_EQ(info.tile_m, plan.tile.tile_m);
  EXPECT_EQ(info.tile_n, plan.tile.tile_n);
  EXPECT_EQ(info.num_splits, plan.tile.num_splits);
  EXPECT_EQ(info.split_size, plan.tile.split_size);
  EXPECT_EQ(info.flops, plan.predicted.flops);
  EXPECT_EQ(info.main_memory_read_bytes, plan.predicted.main_memory_read_bytes);
  EXPECT_EQ(info.main_memory_write_bytes, plan.predicted.main_memory_write_bytes);
}

TEST(CApi, OptionsReachTheProblem) {
  Sample s;
  s.attention.backend = ONCHIP_BACKEND_STANDARD;
  s.attention.num_threads = 1;
  onchip_plan_info info = onchip_plan_info_init();
  ASSERT_EQ(onchip_forward(&s.attention, nullptr, 0, &info), ONCHIP_OK) << onchip_last_error();
  EXPECT_EQ(info.backend, ONCHIP_BACKEND_STANDARD);
  EXPECT_EQ(info.num_threads, 1);
  EXPECT_NEAR(s.lse[2], 4 / std::sqrt(4.0) + std::log(3.0), 1e-6);
  s.attention.causal = 1;
  ASSERT_EQ(onchip_forward(&s.attention, nullptr, 0, nullptr), ONCHIP_OK);
  EXPECT_NEAR(s.lse[1], 2 + std::log(2.0), 1e-6);
  s.attention.window_left = 0;
  s.attention.has_softmax_scale = 1;  // 0 is a scale
  ASSERT_EQ(onchip_forward(&s.attention, nullptr, 0, nullptr), ONCHIP_OK);
  EXPECT_EQ(s.lse[2], 0.0f);
  s.attention.softmax_scale = 10;
  s.attention.softcap = 1;
  ASSERT_EQ(onchip_forward(&s.attention, nullptr, 0, nullptr), ONCHIP_OK);
  EXPECT_NEAR(s.lse[2], 1.0, 1e-6);
  s.attention.at_least = "warp drive";
  EXPECT_EQ(onchip_forward(&s.attention, nullptr, 0, nullptr), ONCHIP_INVALID_ARGUMENT);
  EXPECT_NE(std::string(onchip_last_error()).find("at_least: 'warp drive'"), std::string::npos);
}

TEST(CApi, ExplainIntoABuffer) {
  Sample s;
  const auto explain = [&](std::int32_t format, char* buffer, std::size_t bytes, std::size_t* needed) {
    return onchip_explain(&s.attention, ONCHIP_PASS_FORWARD, format, buffer, bytes, needed);
  };
  std::size_t needed = 0;
  ASSERT_EQ(explain(ONCHIP_EXPLAIN_JSON, nullptr, 0, &needed), ONCHIP_OK);
  std::vector<char> buffer(needed, 'x');
  expect_error(explain(ONCHIP_EXPLAIN_JSON, buffer.data(), needed - 1, nullptr), ONCHIP_WORKSPACE_TOO_SMALL,
               "buffer: " + std::to_string(needed - 1) + " bytes, expected at least " + std::to_string(needed));
  EXPECT_EQ(buffer, std::vector<char>(needed, 'x'));
  ASSERT_EQ(explain(ONCHIP_EXPLAIN_JSON, buffer.data(), needed, nullptr), ONCHIP_OK);
  EXPECT_EQ(std::strlen(buffer.data()) + 1, needed);
  EXPECT_EQ(buffer[0], '{');
  std::vector<char> text(10000);
  ASSERT_EQ(explain(ONCHIP_EXPLAIN_TEXT, text.data(), text.size(), nullptr), ONCHIP_OK);
  EXPECT_EQ(std::string(text.data()).rfind("forward pass: ", 0), 0u);
  std::size_t of_decode = 0;
  ASSERT_EQ(onchip_explain_decode(&s.step, ONCHIP_EXPLAIN_TEXT, nullptr, 0, &of_decode), ONCHIP_OK);
  std::vector<char> decode_text(of_decode);
  ASSERT_EQ(onchip_explain_decode(&s.step, ONCHIP_EXPLAIN_TEXT, decode_text.data(), of_decode, nullptr), ONCHIP_OK);
  EXPECT_EQ(std::string(decode_text.data()).rfind("forward pass: cpu_decode", 0), 0u) << decode_text.data();
  expect_invalid(explain(2, nullptr, 0, nullptr), "format: 2, expected ONCHIP_EXPLAIN_TEXT or ONCHIP_EXPLAIN_JSON");
  expect_invalid(explain(0, nullptr, 5, nullptr), "buffer: NULL with 5 bytes, expected its address");
}

TEST(CApi, NullPointers) {
  Sample s;
  onchip_plan_info info = onchip_plan_info_init();
  const std::string no_attention = "attention: NULL, expected its address";
  expect_invalid(onchip_plan(nullptr, 0, &info), no_attention);
  expect_invalid(onchip_plan(&s.attention, 0, nullptr), "info: NULL, expected its address");
  expect_invalid(onchip_forward(nullptr, nullptr, 0, nullptr), no_attention);
  expect_invalid(onchip_backward(nullptr, nullptr, 0, nullptr), no_attention);
  expect_invalid(onchip_explain(nullptr, 0, 0, nullptr, 0, nullptr), no_attention);
  expect_invalid(onchip_decode(nullptr, nullptr, 0, nullptr), "step: NULL, expected its address");
  expect_invalid(onchip_plan_decode(nullptr, &info), "step: NULL, expected its address");
  s.step.attention = nullptr;
  expect_invalid(onchip_decode(&s.step, nullptr, 0, nullptr), no_attention);
  expect_invalid(onchip_forward(&s.attention, nullptr, 64, nullptr),
                 "workspace: NULL with 64 bytes, expected its address");
  expect_invalid(onchip_merge(&s.attention.o, nullptr, 1, &s.attention.o, nullptr),
                 "lse_parts: NULL, expected its address");
  expect_invalid(onchip_merge(&s.attention.o, &s.attention.lse, 1, nullptr, nullptr), "o: NULL, expected its address");
  expect_invalid(onchip_merge(nullptr, nullptr, 0, &s.attention.o, nullptr), "o_parts: 0 parts, expected at least 1");
}

TEST(CApi, SizesAndNumbersThatAreWrong) {
  const auto refused = [](const std::function<void(Sample&)>& change, const std::string& message) {
    Sample s;
    change(s);
    expect_invalid(onchip_decode(&s.step, nullptr, 0, nullptr), message);
  };
  refused([](Sample& s) { s.attention.struct_size = 8; }, "attention: struct_size 8, expected " +
                                                              std::to_string(sizeof(onchip_attention)) +
                                                              ": begin with onchip_attention_init()");
  refused([](Sample& s) { s.step.struct_size = 0; }, "step: struct_size 0, expected " +
                                                         std::to_string(sizeof(onchip_decode_step)) +
                                                         ": begin with onchip_decode_step_init()");
  refused([](Sample& s) { s.attention.batch_invariant = 2; }, "batch_invariant: 2, expected 0 or 1");
  refused([](Sample& s) { s.step.reserved = -1; }, "step.reserved: -1, expected 0");
  refused([](Sample& s) { s.attention.mask.rank = 5; }, "mask: rank 5, expected 0 (absent) to 4");
  refused([](Sample& s) { s.step.k_new.rank = -1; }, "k_new: rank -1, expected 0 (absent) to 4");
  refused([](Sample& s) { s.attention.v.dtype = 9; }, "v.dtype: 9, expected one of ONCHIP_F64 to ONCHIP_BOOL");
  refused([](Sample& s) { s.attention.backend = 4; },
          "backend: 4, expected one of ONCHIP_BACKEND_AUTO to ONCHIP_BACKEND_CUDA");
  refused([](Sample& s) { s.attention.alignment = -1; },
          "alignment: -1, expected one of ONCHIP_BOTTOM_RIGHT and ONCHIP_TOP_LEFT");
  refused([](Sample& s) { s.attention.causal = 2; }, "causal: 2, expected 0 or 1");
  refused([](Sample& s) { s.attention.has_softmax_scale = 7; }, "has_softmax_scale: 7, expected 0 or 1");
  refused([](Sample& s) { s.step.rotary_interleaved = 3; }, "rotary_interleaved: 3, expected 0 or 1");
  refused(
      [](Sample& s) {
        s.attention.has_softmax_scale = 1;
        s.attention.softmax_scale = std::numeric_limits<double>::quiet_NaN();
      },
      "softmax_scale: expected a finite number, got nan");
  Sample s;
  onchip_plan_info info = onchip_plan_info_init();
  expect_invalid(onchip_plan(&s.attention, 2, &info),
                 "pass: 2, expected one of ONCHIP_PASS_FORWARD and ONCHIP_PASS_BACKWARD");
  info.struct_size = 1;
  expect_invalid(
      onchip_forward(&s.attention, nullptr, 0, &info),
      "info: struct_size 1, expected " + std::to_string(sizeof info) + ": begin with onchip_plan_info_init()");
}

TEST(CApi, LastErrorIsOfThisThreadAndOfItsLastCall) {
  Sample s;
  EXPECT_NE(onchip_forward(nullptr, nullptr, 0, nullptr), ONCHIP_OK);
  std::thread([&] {
    EXPECT_STREQ(onchip_last_error(), "");
    EXPECT_NE(onchip_merge(nullptr, nullptr, 0, nullptr, nullptr), ONCHIP_OK);
    EXPECT_STREQ(onchip_last_error(), "o: NULL, expected its address");
  }).join();
  EXPECT_STREQ(onchip_last_error(), "attention: NULL, expected its address");
  const std::string long_name(5000, 'x');
  s.attention.at_least = long_name.c_str();
  EXPECT_EQ(onchip_forward(&s.attention, nullptr, 0, nullptr), ONCHIP_INVALID_ARGUMENT);
  EXPECT_EQ(std::strlen(onchip_last_error()), 1023u);
  s.attention.at_least = nullptr;
  EXPECT_EQ(onchip_forward(&s.attention, nullptr, 0, nullptr), ONCHIP_OK);
  EXPECT_STREQ(onchip_last_error(), "");
}

TEST(CApi, WorkspaceOfThePlan) {
  Sample s;
  onchip_plan_info info = onchip_plan_info_init();
  s.attention.backend = ONCHIP_BACKEND_STANDARD;
  ASSERT_EQ(onchip_plan(&s.attention, ONCHIP_PASS_FORWARD, &info), ONCHIP_OK);
  ASSERT_GT(info.workspace_bytes, 0u);
  std::vector<std::byte> memory(info.workspace_bytes + 64);
  auto* aligned = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
  EXPECT_EQ(onchip_forward(&s.attention, aligned, info.workspace_bytes - 1, nullptr), ONCHIP_WORKSPACE_TOO_SMALL);
  EXPECT_EQ(onchip_forward(&s.attention, aligned, info.workspace_bytes, nullptr), ONCHIP_OK);
  EXPECT_NEAR(s.o[5], 1.0, 1e-6);
}

TEST(CApi, VersionIsThatOfCpp) { EXPECT_STREQ(onchip_version(), onchip::version()); }

}  // namespace
