#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/decode_rig.hpp"
#include "onchip/onchip.hpp"

namespace onchip {
namespace {

using test::CacheLayout;
using test::CacheScale;
using test::DecodeOptions;
using test::DecodeRig;
using test::OwnedTensor;

/// decode() of `problem` fails with `message` and leaves the cache as it was.
void expect_refused(DecodeRig& rig, const Decode& problem, const std::string& message) {
  const std::vector<std::byte> cache = rig.k().memory;
  try {
    decode(problem);
    ADD_FAILURE() << "accepted, expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), message);
    EXPECT_EQ(error.code(), StatusCode::invalid_argument);
  }
  EXPECT_EQ(rig.k().memory, cache);
}

/// A valid step of 2 tokens, changed by `change`.
void expect_refused(const DecodeOptions& options, std::vector<std::int32_t> lengths,
                    const std::function<void(Decode&)>& change, const std::string& message) {
  DecodeRig rig(options, std::move(lengths));
  rig.draw({2, 2, 2});
  Decode problem = rig.problem();
  change(problem);
  expect_refused(rig, problem, message);
}

DecodeOptions with_rotary() {
  DecodeOptions options;
  options.rotary = 8;
  return options;
}

const auto unchanged = [](Decode&) {};

TEST(DecodeErrors, NewKeysThatDoNotFit) {
  expect_refused({}, {0, 23, 0}, unchanged,
                 "seqused_k: 23 at index 1, expected at most 22, so that 2 new keys fit into the 24 of the cache");
  DecodeOptions packed;
  packed.layout = CacheLayout::packed;
  expect_refused(packed, {0, 0, 24}, unchanged,
                 "seqused_k: 24 at index 2, expected at most 22, so that 2 new keys fit into the 24 of the cache");
  DecodeOptions paged;
  paged.layout = CacheLayout::paged;
  DecodeRig rig(paged, {3, 3, 3});  // the second new key begins page 1
  rig.draw({2, 2, 2});
  const Decode problem = rig.problem();
  static_cast<std::int32_t*>(problem.attention.page_table.data)[6 + 1] = 18;
  expect_refused(rig, problem, "page_table: page 18 at [1, 1], expected 0 to 17, the pages of k");
}

TEST(DecodeErrors, NewKeysAndValues) {
  expect_refused(
      {}, {0, 0, 0}, [](Decode& d) { d.v_new = {}; }, "v_new: missing, expected it together with k_new");
  expect_refused(
      {}, {0, 0, 0}, [](Decode& d) { d.k_new = {}; }, "k_new: missing, expected it together with v_new");
  expect_refused(
      {}, {0, 0, 0}, [](Decode& d) { d.attention.seqused_k = {}; },
      "seqused_k: missing, expected the number of keys that the cache holds before the append");
  expect_refused(
      {}, {0, 0, 0}, [](Decode& d) { d.k_new.dtype = DType::bf16; }, "k_new: type bf16, expected f32");
  expect_refused(
      {}, {0, 0, 0}, [](Decode& d) { d.k_new.shape[3] = 11; },
      "k_new: shape [3, 2, 2, 11], expected [B, Snew, Hk, D] = [3, 2, 2, 12]");
  expect_refused(
      {}, {0, 0, 0}, [](Decode& d) { d.v_new.shape[1] = 1; },
      "v_new: shape [3, 1, 2, 6], expected [B, Snew, Hk, D] = [3, 2, 2, 6]");
  expect_refused(
      {}, {0, 0, 0}, [](Decode& d) { d.k_new.data = nullptr; },
      "k_new: data is null, expected the address of a [3, 2, 2, 12] tensor of type f32");
  expect_refused(
      {}, {0, 0, 0}, [](Decode& d) { d.attention.k.stride[0] = 0; },
      "k: stride 0 over size 3, expected an output whose elements do not overlap");
  DecodeOptions packed;
  packed.packed_q = true;
  expect_refused(
      packed, {0, 0, 0}, [](Decode& d) { d.k_new.shape[0] = 5; },
      "k_new: shape [5, 2, 12], expected packed as q, [total_q, Hk, D] = [6, 2, 12]");
}

TEST(DecodeErrors, RotaryTables) {
  expect_refused(
      with_rotary(), {0, 0, 0}, [](Decode& d) { d.rotary.sin = {}; },
      "rotary.sin: missing, expected it together with rotary.cos");
  expect_refused(
      with_rotary(), {0, 0, 0}, [](Decode& d) { d.rotary.cos = {}; },
      "rotary.cos: missing, expected it together with rotary.sin");
  expect_refused(
      with_rotary(), {0, 0, 0}, [](Decode& d) { d.rotary.cos.dtype = DType::f16; },
      "rotary.cos: type f16, expected f32");
  expect_refused(
      with_rotary(), {0, 0, 0}, [](Decode& d) { d.rotary.cos.shape[1] = 7; },
      "rotary.cos: shape [24, 7], expected [max_position, R/2] with R/2 from 1 to 6, half of q's head dimension");
  expect_refused(
      with_rotary(), {0, 0, 0}, [](Decode& d) { d.rotary.sin.shape[0] = 20; },
      "rotary.sin: shape [20, 4], expected the shape of rotary.cos = [24, 4]");
  expect_refused(
      with_rotary(), {0, 20, 0}, [](Decode& d) { d.rotary.cos.shape[0] = d.rotary.sin.shape[0] = 21; },
      "rotary.cos: 21 positions, expected at least 22 for sequence 1");
  const auto one_new_key = [](Decode& d) { d.k_new.shape[1] = d.v_new.shape[1] = 1; };
  expect_refused(with_rotary(), {1, 0, 1}, one_new_key,
                 "seqused_k: 1 keys for the 2 queries of sequence 1, expected at least as many keys, so that no rotary "
                 "position is negative");
}

TEST(DecodeErrors, ScalesThatNobodyCanDivideBy) {
  DecodeOptions options;
  options.cache_type = DType::i8;
  options.scale = CacheScale::head;
  expect_refused(
      options, {0, 0, 0}, [](Decode& d) { static_cast<float*>(d.attention.k_scale.data)[1] = 0; },
      "k_scale: 0 for head 1 of sequence 0, expected a finite number other than 0 to divide by");
  expect_refused(
      options, {0, 0, 0},
      [](Decode& d) { static_cast<float*>(d.attention.v_scale.data)[0] = std::numeric_limits<float>::infinity(); },
      "v_scale: inf for head 0 of sequence 0, expected a finite number other than 0 to divide by");
}

TEST(DecodeErrors, WhatAttentionRefuses) {
  expect_refused({}, {0, -1, 0}, unchanged,
                 "seqused_k: -1 at index 1, expected 0 to 24, the keys that the sequence can hold");
  expect_refused(
      {}, {0, 0, 0}, [](Decode& d) { d.attention.o = {}; }, "o: missing, expected a tensor to write the output to");
}

}  // namespace
}  // namespace onchip
