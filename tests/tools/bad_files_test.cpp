// attend, with files that are not what they should be.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "tools/bad_headers.hpp"
#include "tools/process.hpp"
#include "tools/temporary_folder.hpp"
#include "tools/tensor_files.hpp"

namespace onchip::test {
namespace {

class BadFiles : public testing::Test {
 protected:
  void expect_refused(const std::string& content, const std::vector<std::string>& mentions) {
    folder_.write("in", content);
    expect_refusal(run_onchip({"attend", folder_.path("in"), "-o", folder_.path("out")}), mentions);
    EXPECT_EQ(folder_.files(), std::vector<std::string>{"in"});
  }

  TemporaryFolder folder_;
};

TEST_F(BadFiles, WithoutAnEnd) {
  expect_refusal(run_onchip({"attend", "/dev/zero", "-o", folder_.path("out")}), {"/dev/zero", "device"});
  expect_refusal(run_onchip({"attend", "--q", "/dev/zero", "-o", folder_.path("out")}), {"/dev/zero", "device"});
  expect_refusal(run_onchip({"traffic", "--machine", "/dev/zero"}), {"/dev/zero", "device"});
}

/// A writer that never stops, into a pipe.
TEST_F(BadFiles, PipesWithoutAnEnd) {
  const std::string pipe = folder_.path("pipe");
  for (const std::string& content : {std::string(65536, '\0'), safetensors_file(small_tensors())}) {
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    const pid_t writer = ::fork();
    if (writer == 0) {
      ::signal(SIGPIPE, SIG_DFL);
      std::FILE* file = std::fopen(pipe.c_str(), "w");
      while (file != nullptr) std::fwrite(content.data(), 1, content.size(), file);
      ::_exit(0);
    }
    expect_refusal(run_onchip({"attend", pipe, "-o", folder_.path("out")}), {"pipe"});
    ::kill(writer, SIGKILL);
    ::waitpid(writer, nullptr, 0);
    std::filesystem::remove(pipe);
  }
  EXPECT_TRUE(folder_.files().empty());
}

TEST_F(BadFiles, ZeroByteInAName) {
  std::string header = R"({"qX":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  header.replace(header.find('X'), 1, "\\u0000");
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  expect_refused(file + header + std::string(4, '\0'), {"'q?'", "expected some of"});
}

TEST_F(BadFiles, Missing) {
  expect_refusal(run_onchip({"attend", folder_.path("none"), "-o", folder_.path("out")}), {"none", "No such file"});
  EXPECT_TRUE(folder_.files().empty());
}

TEST_F(BadFiles, AFolder) {
  expect_refusal(run_onchip({"attend", folder_.path("."), "-o", folder_.path("out")}), {"folder"});
}

TEST_F(BadFiles, Unreadable) {
  const std::string file = folder_.write("in", safetensors_file(small_tensors()));
  std::filesystem::permissions(file, std::filesystem::perms::none);
  if (::access(file.c_str(), R_OK) == 0) GTEST_SKIP() << "this user may read everything";
  expect_refusal(run_onchip({"attend", file, "-o", folder_.path("out")}), {"in", "Permission denied"});
}

TEST_F(BadFiles, Empty) { expect_refused("", {"0 bytes"}); }

TEST_F(BadFiles, CutAtEveryByte) {
  const std::string file = safetensors_file(small_tensors());
  for (std::size_t size = 1; size < file.size(); ++size) {
    SCOPED_TRACE("cut to " + std::to_string(size) + " bytes");
    expect_refused(file.substr(0, size), {size < 8 ? "expected a safetensors file" : "bytes"});
  }
}

TEST_F(BadFiles, HeaderLengthNear2To64) {
  for (const std::uint64_t below : {1u, 8u, 9u, 4096u}) {
    const std::uint64_t length = 0 - std::uint64_t{below};
    std::string file = safetensors_file(small_tensors());
    std::memcpy(file.data(), &length, sizeof length);
    expect_refused(file, {"header length", std::to_string(length)});
  }
}

TEST_F(BadFiles, LyingHeaders) {
  for (const BadHeader& bad : bad_headers()) {
    SCOPED_TRACE(bad.what);
    expect_refused(safetensors_file(bad.header, std::string(32, '\0')), bad.mentions);
  }
}

TEST_F(BadFiles, UnknownTensor) {
  Tensors tensors = small_tensors();
  tensors["query"] = floats({1});
  expect_refused(safetensors_file(tensors), {"'query'", "q, k, v"});
}

TEST_F(BadFiles, AResultAmongTheInputs) {
  Tensors tensors = small_tensors();
  tensors["o"] = floats({1, 2, 2, 2});
  expect_refused(safetensors_file(tensors), {"'o'", "result"});
}

TEST_F(BadFiles, NamesCannotForgeLines) {
  expect_refused(safetensors_file(R"({"x\nonchip: all is well\u001b[2J": {"dtype": "I8", "shape": [1],
      "data_offsets": [0, 1]}})",
                                  "x"),
                 {"all is well"});
}

TEST_F(BadFiles, TypesThatAttentionHasNot) {
  for (const char* type : {"U8", "I16", "U16", "U32", "U64", "I64"}) {
    Tensors tensors = small_tensors();
    const std::size_t bytes = type[1] == '8' ? 1 : type[1] == '1' ? 2 : type[1] == '3' ? 4 : 8;
    tensors["k"] = zeros(type, bytes, {1, 2, 2, 2});
    expect_refused(safetensors_file(tensors), {"'k'", type});
  }
}

TEST_F(BadFiles, BooleansThatAreNeither) {
  Tensors tensors = small_tensors();
  tensors["mask"] = {"BOOL", {1, 1, 2, 2}, std::string("\1\0\2\1", 4)};
  expect_refused(safetensors_file(tensors), {"'mask'", "byte 2", "element 2"});
}

TEST_F(BadFiles, LengthsBeyond32Bits) {
  Tensors tensors = small_tensors();
  tensors["seqused_k"] = content<std::int64_t>("I64", {1}, {std::int64_t{1} << 32});
  expect_refused(safetensors_file(tensors), {"'seqused_k'", "4294967296", "32 bits"});
}

TEST_F(BadFiles, RanksThatNoTensorHas) {
  Tensors tensors = small_tensors();
  tensors["k_scale"] = floats({});
  expect_refused(safetensors_file(tensors), {"'k_scale'", "[]"});
  tensors.erase("k_scale");
  tensors["q"] = floats({1, 1, 2, 2, 2});
  expect_refused(safetensors_file(tensors), {"'q'", "[1, 1, 2, 2, 2]"});
}

TEST_F(BadFiles, ATensorGivenTwice) {
  const std::string in = folder_.write("in", safetensors_file(small_tensors()));
  const std::string q = folder_.write("q.npy", npy_file("<f4", floats({1, 2, 2, 2})));
  expect_refusal(run_onchip({"attend", in, "--q", q, "-o", folder_.path("out")}), {"'q'", "already"});
}

TEST_F(BadFiles, Npy) {
  const std::string file = npy_file("<f4", floats({1, 2, 2, 2}));
  const std::string good = folder_.write("good.npy", file);
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, std::size_t{9}, std::size_t{40}, file.size() - 1}) {
    const std::string bad = folder_.write("bad.npy", file.substr(0, size));
    expect_refusal(run_onchip({"attend", "--q", good, "--k", bad, "--v", good, "-o", folder_.path("out")}),
                   {"bad.npy"});
  }
  EXPECT_EQ(folder_.files(), (std::vector<std::string>{"bad.npy", "good.npy"}));
}

}  // namespace
}  // namespace onchip::test
