// attend, with sound files that hold no attention problem.
#include <gtest/gtest.h>

#include "tools/process.hpp"
#include "tools/temporary_folder.hpp"
#include "tools/tensor_files.hpp"

namespace onchip::test {
namespace {

void expect_refused(const Tensors& tensors, const std::vector<std::string>& mentions,
                    const std::vector<std::string>& options = {}) {
  const TemporaryFolder folder;
  std::vector<std::string> args = {"attend", folder.write("in", safetensors_file(tensors)), "-o", folder.path("out")};
  args.insert(args.end(), options.begin(), options.end());
  expect_refusal(run_onchip(args), mentions);
  EXPECT_EQ(folder.files(), std::vector<std::string>{"in"});
}

Tensors with(Tensors tensors, const std::string& name, FileContent tensor) {
  tensors[name] = std::move(tensor);
  return tensors;
}

/// Two packed sequences of 3 and 2 rows.
Tensors packed_tensors() {
  return {{"q", floats({5, 2, 4})},
          {"k", floats({5, 2, 4})},
          {"v", floats({5, 2, 4})},
          {"cu_seqlens_q", ints({0, 3, 5})},
          {"cu_seqlens_k", ints({0, 3, 5})}};
}

/// Two sequences of up to 2 pages of 4 keys, in a pool of 5.
Tensors paged_tensors() {
  FileContent table = ints({0, 1, 2, 3});
  table.shape = {2, 2};
  return {{"q", floats({2, 1, 2, 4})},
          {"k", floats({5, 4, 2, 4})},
          {"v", floats({5, 4, 2, 4})},
          {"page_table", table},
          {"seqused_k", ints({8, 5})}};
}

TEST(BadProblems, MissingTensors) {
  for (const char* name : {"q", "k", "v"}) {
    Tensors tensors = small_tensors();
    tensors.erase(name);
    expect_refused(tensors, {std::string(name) + ": missing"});
  }
}

TEST(BadProblems, WrongRank) {
  expect_refused(with(small_tensors(), "q", floats({2, 2, 2})), {"q:", "[2, 2, 2]", "[B, Sq, Hq, D]"});
  expect_refused(with(small_tensors(), "k", floats({2, 2, 2})), {"k:", "[2, 2, 2]"});
  expect_refused(with(small_tensors(), "mask", zeros("BOOL", 1, {2, 2})), {"mask:", "[2, 2]"});
  expect_refused(with(packed_tensors(), "q", floats({1, 5, 2, 4})), {"q:", "[1, 5, 2, 4]", "packed"});
}

TEST(BadProblems, ShapesThatDisagree) {
  expect_refused(with(small_tensors(), "k", floats({2, 2, 2, 2})), {"k"});
  expect_refused(with(small_tensors(), "v", floats({1, 3, 2, 2})), {"v:", "[1, 3, 2, 2]"});
  expect_refused(with(with(small_tensors(), "k", floats({1, 2, 2, 3})), "v", floats({1, 2, 2, 3})), {"k:", "2"});
  expect_refused(with(small_tensors(), "bias", floats({1, 1, 2, 3})), {"bias:", "[1, 1, 2, 3]"});
  expect_refused(with(small_tensors(), "mask", zeros("BOOL", 1, {1, 3, 2, 2})), {"mask:", "[1, 3, 2, 2]"});
  expect_refused(with(small_tensors(), "alibi_slopes", floats({3})), {"alibi_slopes:", "[3]"});
  expect_refused(with(small_tensors(), "sink", floats({1})), {"sink:", "[1]"});
  expect_refused(with(small_tensors(), "dout", floats({1, 2, 2, 3})), {"dout:", "[1, 2, 2, 3]"});
  expect_refused(with(small_tensors(), "seqused_k", ints({1, 1})), {"seqused_k:", "[2]"});
  expect_refused(with(packed_tensors(), "cu_seqlens_k", ints({0, 5})), {"cu_seqlens_k", "1 sequences", "2"});
}

TEST(BadProblems, WrongTypes) {
  expect_refused(with(small_tensors(), "k", zeros("F16", 2, {1, 2, 2, 2})), {"k:", "f16", "f32"});
  expect_refused(with(small_tensors(), "q", zeros("I32", 4, {1, 2, 2, 2})), {"q:", "i32"});
  expect_refused(with(small_tensors(), "mask", floats({1, 1, 2, 2})), {"mask:", "f32"});
  expect_refused(with(small_tensors(), "seqused_k", floats({1})), {"seqused_k:", "f32", "i32"});
  expect_refused(with(with(small_tensors(), "k", zeros("I8", 1, {1, 2, 2, 2})), "v", zeros("I8", 1, {1, 2, 2, 2})),
                 {"k_scale: missing"});
}

TEST(BadProblems, Heads) {
  const Tensors tensors = with(small_tensors(), "q", floats({1, 2, 3, 2}));
  expect_refused(tensors, {"q: 3 heads", "multiple of the 2 heads of k"});
}

TEST(BadProblems, SizesOfZero) {
  expect_refused({{"q", floats({1, 2, 2, 0})}, {"k", floats({1, 2, 2, 0})}, {"v", floats({1, 2, 2, 2})}},
                 {"q:", "head dimension 0"});
  expect_refused(with(small_tensors(), "v", floats({1, 2, 2, 0})), {"v:", "head dimension 0"});
  expect_refused(with(small_tensors(), "q", floats({1, 2, 0, 2})), {"q: 0 heads"});
  expect_refused({{"q", floats({1, 2, 2, 2})}, {"k", floats({1, 2, 0, 2})}, {"v", floats({1, 2, 0, 2})}},
                 {"k: 0 heads"});
}

TEST(BadProblems, MoreSequencesThanCanBeLoopedOver) {
  const FileContent many = {"F32", {std::int64_t{1} << 40, 0, 1, 1}, ""};
  expect_refused({{"q", many}, {"k", many}, {"v", many}}, {"q: 1099511627776 sequences", "2147483647"});
}

TEST(BadProblems, PackedLengths) {
  for (const char* name : {"cu_seqlens_q", "cu_seqlens_k"}) {
    expect_refused(with(packed_tensors(), name, ints({1, 3, 5})), {name, "begins with 1"});
    expect_refused(with(packed_tensors(), name, ints({0, 6, 5})), {name, "decreases from 6 to 5"});
    expect_refused(with(packed_tensors(), name, ints({0, 3, 4})), {name, "ends with 4", "5"});
    expect_refused(with(packed_tensors(), name, ints({})), {name, "[0]"});
  }
}

TEST(BadProblems, UsedLengths) {
  expect_refused(with(small_tensors(), "seqused_k", ints({-1})), {"seqused_k", "-1", "0 to 2"});
  expect_refused(with(small_tensors(), "seqused_k", ints({3})), {"seqused_k", "3", "0 to 2"});
  expect_refused(with(packed_tensors(), "seqused_k", ints({3, 3})), {"seqused_k", "3 at index 1", "0 to 2"});
  expect_refused(with(paged_tensors(), "seqused_k", ints({9, 1})), {"seqused_k", "9 at index 0", "0 to 8"});
}

TEST(BadProblems, PagesOutsideThePool) {
  for (const std::int32_t page : {-1, 5, 1 << 30}) {
    FileContent table = ints({0, 1, page, 3});
    table.shape = {2, 2};
    expect_refused(with(paged_tensors(), "page_table", table),
                   {"page_table", "page " + std::to_string(page), "[1, 0]", "0 to 4"});
  }
}

TEST(BadProblems, OptionValues) {
  expect_refused(small_tensors(), {"scale", "nan"}, {"--scale", "nan"});
  expect_refused(small_tensors(), {"scale", "inf"}, {"--scale", "-inf"});
  expect_refused(small_tensors(), {"window", "-2"}, {"--window", "-2,0"});
  expect_refused(small_tensors(), {"window", "-3"}, {"--window", "0,-3"});
  expect_refused(small_tensors(), {"softcap", "-1"}, {"--softcap", "-1"});
  expect_refused(small_tensors(), {"softcap", "nan"}, {"--softcap", "nan"});
  expect_refused(small_tensors(), {"num_threads", "-1"}, {"--threads", "-1"});
}

}  // namespace
}  // namespace onchip::test
