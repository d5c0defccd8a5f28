// attend, with what it can do. That the numbers are right is for the suites of the library.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "onchip/io/safetensors.hpp"
#include "tools/process.hpp"
#include "tools/temporary_folder.hpp"
#include "tools/tensor_files.hpp"

namespace onchip::test {
namespace {

class Attend : public testing::Test {
 protected:
  /// The output of attend with these arguments and -o; empty, with a failure, when it was refused.
  std::string attend(std::vector<std::string> args) {
    args.insert(args.begin(), "attend");
    args.insert(args.end(), {"-o", folder_.path("out")});
    const Outcome outcome = run_onchip(args);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return outcome.status == 0 ? read_text(folder_.path("out")) : "";
  }

  std::string attend(const Tensors& tensors, std::vector<std::string> options = {}) {
    options.insert(options.begin(), folder_.write("in", safetensors_file(tensors)));
    return attend(options);
  }

  TemporaryFolder folder_;
};

/// NAME:TYPE[SHAPE] of every tensor, sorted by name.
std::vector<std::string> contents(const std::string& file) {
  std::vector<std::string> names;
  for (const auto& tensor : cli::parse_safetensors(bytes_of(file), "out"))
    names.push_back(tensor.name + ":" + tensor.type->name + cli::shape_text(tensor.shape));
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

TEST_F(Attend, WritesOutputAndLse) {
  EXPECT_EQ(contents(attend(small_tensors())), (Names{"lse:F32[1, 2, 2]", "o:F32[1, 2, 2, 2]"}));
}

TEST_F(Attend, WritesEveryGradientThatHasAnInput) {
  Tensors tensors = small_tensors();
  tensors["dout"] = floats({1, 2, 2, 2});
  EXPECT_EQ(contents(attend(tensors)), (Names{"dk:F32[1, 2, 2, 2]", "dq:F32[1, 2, 2, 2]", "dv:F32[1, 2, 2, 2]",
                                              "lse:F32[1, 2, 2]", "o:F32[1, 2, 2, 2]"}));
  tensors["bias"] = floats({1, 1, 2, 2});
  tensors["sink"] = floats({2});
  EXPECT_EQ(contents(attend(tensors)),
            (Names{"dbias:F32[1, 1, 2, 2]", "dk:F32[1, 2, 2, 2]", "dq:F32[1, 2, 2, 2]", "dsink:F32[2]",
                   "dv:F32[1, 2, 2, 2]", "lse:F32[1, 2, 2]", "o:F32[1, 2, 2, 2]"}));
}

TEST_F(Attend, KeepsTheTypeOfQ) {
  for (const auto& [type, bytes, o, lse] : {std::tuple{"F64", 8, "F64", "F64"},
                                            {"BF16", 2, "BF16", "F32"},
                                            {"F16", 2, "F16", "F32"},
                                            {"F8_E4M3", 1, "BF16", "F32"}}) {
    const FileContent zero = zeros(type, static_cast<std::size_t>(bytes), {1, 2, 2, 2});
    EXPECT_EQ(contents(attend({{"q", zero}, {"k", zero}, {"v", zero}})),
              (Names{std::string("lse:") + lse + "[1, 2, 2]", std::string("o:") + o + "[1, 2, 2, 2]"}));
  }
}

TEST_F(Attend, NothingToDoIsDone) {
  for (const auto& [batch, seqlen_q, seqlen_k] : {std::tuple{0, 2, 2}, {1, 0, 2}, {1, 2, 0}, {0, 0, 0}}) {
    const Tensors tensors = {{"q", floats({batch, seqlen_q, 2, 2})},
                             {"k", floats({batch, seqlen_k, 2, 2})},
                             {"v", floats({batch, seqlen_k, 2, 2})},
                             {"dout", floats({batch, seqlen_q, 2, 2})}};
    EXPECT_EQ(contents(attend(tensors)).size(), 5u);
  }
}

TEST_F(Attend, TakesNpyFilesForAnyTensor) {
  Tensors tensors = small_tensors();
  tensors["mask"] = {"BOOL", {1, 1, 2, 2}, std::string("\1\0\1\1", 4)};
  const std::string wanted = attend(tensors);
  const std::string mask = folder_.write("mask.npy", npy_file("|b1", tensors["mask"]));
  std::vector<std::string> args = {"--mask", mask};
  for (const char* name : {"q", "k", "v"}) {
    args.push_back(std::string("--") + name);
    args.push_back(folder_.write(std::string(name) + ".npy", npy_file("<f4", tensors[name])));
  }
  EXPECT_EQ(attend(args), wanted);
  EXPECT_EQ(attend(small_tensors(), {"--mask", mask}), wanted) << "one file may complete another";
}

TEST_F(Attend, TakesLengthsOf64Bits) {
  Tensors tensors = {{"q", floats({5, 2, 4})},          {"k", floats({5, 2, 4})},          {"v", floats({5, 2, 4})},
                     {"cu_seqlens_q", ints({0, 3, 5})}, {"cu_seqlens_k", ints({0, 3, 5})}, {"seqused_k", ints({2, 1})}};
  const std::string wanted = attend(tensors);
  tensors["cu_seqlens_q"] = tensors["cu_seqlens_k"] = content<std::int64_t>("I64", {3}, {0, 3, 5});
  tensors["seqused_k"] = content<std::int64_t>("I64", {2}, {2, 1});
  EXPECT_EQ(attend(tensors), wanted);
}

TEST_F(Attend, TakesTensorsAtAnyAddress) {
  const Tensors tensors = small_tensors();
  const std::string wanted = attend(tensors);
  const std::string aligned = safetensors_file(tensors);
  std::uint64_t length = 0;
  std::memcpy(&length, aligned.data(), sizeof length);
  for (int padding = 1; padding < 4; ++padding) {
    const std::string odd =
        safetensors_file(aligned.substr(8, length) + std::string(padding, ' '), aligned.substr(8 + length));
    EXPECT_EQ(attend({folder_.write("odd", odd)}), wanted);
  }
}

TEST_F(Attend, FollowsNoPageThatIsNotUsed) {
  FileContent table = ints({0, 1, 2, 99});
  table.shape = {2, 2};
  EXPECT_NE(attend({{"q", floats({2, 1, 2, 4})},
                    {"k", floats({5, 4, 2, 4})},
                    {"v", floats({5, 4, 2, 4})},
                    {"page_table", table},
                    {"seqused_k", ints({8, 4})}}),
            "");
}

TEST_F(Attend, OptionsReachTheFunction) {
  const Tensors tensors = {{"q", floats({1, 3, 2, 4})}, {"k", floats({1, 5, 2, 4})}, {"v", floats({1, 5, 2, 4})}};
  const std::string plain = attend(tensors);
  std::vector<std::string> outputs = {plain};
  for (const std::vector<std::string>& options : {std::vector<std::string>{"--causal"},
                                                  {"--causal", "--top-left"},
                                                  {"--window", "0,1"},
                                                  {"--window=-1,1"},
                                                  {"--scale", "-0.25"},
                                                  {"--scale", "0"},
                                                  {"--softcap", "0.5"}})
    outputs.push_back(attend(tensors, options));
  std::sort(outputs.begin(), outputs.end());
  EXPECT_EQ(std::unique(outputs.begin(), outputs.end()), outputs.end()) << "each option changes the result";
  EXPECT_EQ(attend(tensors, {"--window", "-1,-1", "--softcap", "0", "--scale", "0.5", "--threads", "1"}), plain);
  EXPECT_EQ(attend(tensors, {"--causal"}), attend(tensors, {"--window", "-1,0"}));
}

TEST_F(Attend, HoldsToAtLeast) {
  attend(small_tensors(), {"--at-least", "standard_forward"});
  const std::string in = folder_.write("in", safetensors_file(small_tensors()));
  const std::vector<std::string> args = {"attend", in, "-o", folder_.path("none"), "--at-least", "warp_drive"};
  expect_refusal(run_onchip(args), {"--at-least", "'warp_drive'", "standard_forward"});
  EXPECT_FALSE(std::filesystem::exists(folder_.path("none")));
}

TEST_F(Attend, WritesThroughLinksAndToDevices) {
  const std::string wanted = attend(small_tensors());
  folder_.write("real", "before");
  std::filesystem::create_symlink(folder_.path("real"), folder_.path("link"));
  EXPECT_EQ(run_onchip({"attend", folder_.path("in"), "-o", folder_.path("link")}).status, 0);
  EXPECT_EQ(read_text(folder_.path("real")), wanted);
  EXPECT_EQ(run_onchip({"attend", folder_.path("in"), "-o", "/dev/null"}).status, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(Attend, ComparesWithStandard) {
  Tensors tensors = small_tensors();
  tensors["dout"] = floats({1, 2, 2, 2});
  const std::string wanted = attend(tensors);
  const std::string out = folder_.path("compared");
  const Outcome text = run_onchip({"attend", folder_.path("in"), "--compare", "standard", "-o", out});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(read_text(out), wanted);
  for (const char* part :
       {"forward pass", "backward pass", "time, median", "extra memory", "main memory traffic", "dq"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part;

  const Outcome json = run_onchip({"attend", folder_.path("in"), "--compare", "standard", "--json"});
  EXPECT_EQ(json.status, 0) << json.err;
  const auto report = nlohmann::json::parse(json.out);
  for (const char* column : {"chosen", "other"}) {
    EXPECT_EQ(report[column]["passes"].size(), 2u);
    EXPECT_EQ(report[column]["errors"].size(), 5u);
    for (const auto& pass : report[column]["passes"]) EXPECT_GT(pass["seconds"]["median"].get<double>(), 0);
    for (const auto& error : report[column]["errors"]) EXPECT_LT(error["max_relative"].get<double>(), 2e-5);
  }
}

TEST_F(Attend, ExplainsTheProblemOfAFile) {
  const std::string in = folder_.write("in", safetensors_file(small_tensors()));
  const Outcome outcome = run_onchip({"explain", in, "--backend", "standard", "--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["implementation"], "standard_forward");
  expect_refusal(run_onchip({"explain", in, "--heads", "4"}), {"--heads", "file"});
}

TEST_F(Attend, BenchWritesATableAndJson) {
  const std::string json = folder_.path("bench.json");
  const Outcome outcome =
      run_onchip({"bench", "--seqlen", "16,33", "--head-dim", "8", "--heads", "4", "--kv-heads", "2", "--backend",
                  "standard", "--backward", "--causal", "--seconds", "0.01", "--dtype", "f32,bf16", "--json", json});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "") << "no progress bar without a terminal";
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2 + 2 * 2 * 2);
  const auto rows = nlohmann::json::parse(read_text(json))["rows"];
  ASSERT_EQ(rows.size(), 8u);
  for (const auto& row : rows) EXPECT_GT(row["gflop_per_second"].get<double>(), 0);
}

}  // namespace
}  // namespace onchip::test
