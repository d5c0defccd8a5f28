// attend, when its output cannot be written.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>

#include "tools/process.hpp"
#include "tools/temporary_folder.hpp"
#include "tools/tensor_files.hpp"

namespace onchip::test {
namespace {

class BadOutputs : public testing::Test {
 protected:
  Outcome attend(const std::string& output, std::optional<std::uint64_t> file_size_limit = {}) {
    return run_onchip({"attend", in_, "-o", output, "--backend", "standard"}, file_size_limit);
  }

  TemporaryFolder folder_;
  // 32 KiB of results, more than any limit below
  std::string in_ = folder_.write(
      "in",
      safetensors_file({{"q", floats({1, 64, 2, 64})}, {"k", floats({1, 64, 2, 64})}, {"v", floats({1, 64, 2, 64})}}));
};

TEST_F(BadOutputs, FolderMissing) {
  expect_refusal(attend(folder_.path("none/out")), {"none/out", "No such file or directory"});
  EXPECT_EQ(folder_.files(), std::vector<std::string>{"in"});
}

TEST_F(BadOutputs, AFolder) { expect_refusal(attend(folder_.path("")), {"folder"}); }

TEST_F(BadOutputs, AFileInPlaceOfTheFolder) { expect_refusal(attend(in_ + "/out"), {"in/out", "folder"}); }

TEST_F(BadOutputs, FolderNotWritable) {
  const std::string closed = folder_.path("closed");
  std::filesystem::create_directory(closed);
  std::filesystem::permissions(closed, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  if (::access(closed.c_str(), W_OK) == 0) GTEST_SKIP() << "this user may write everywhere";
  expect_refusal(attend(closed + "/out"), {"closed/out", "Permission denied"});
}

TEST_F(BadOutputs, FolderThatTakesNoFiles) { expect_refusal(attend("/proc/onchip-out"), {"/proc/onchip-out"}); }

TEST_F(BadOutputs, FileSizeLimit) {
  expect_refusal(attend(folder_.path("out"), 4096), {"out: cannot be written: File too large"});
  EXPECT_EQ(folder_.files(), std::vector<std::string>{"in"});
}

TEST_F(BadOutputs, AnOlderOutputStays) {
  const std::string out = folder_.write("out", "before");
  expect_refusal(attend(out, 4096), {"out: cannot be written"});
  EXPECT_EQ(read_text(out), "before");
  EXPECT_EQ(folder_.files(), (std::vector<std::string>{"in", "out"}));
}

TEST_F(BadOutputs, FullDevice) { expect_refusal(attend("/dev/full"), {"/dev/full", "No space left on device"}); }

TEST_F(BadOutputs, FullDisk) {
  const std::string disk = folder_.path("disk");
  std::filesystem::create_directory(disk);
  if (::mount("onchip", disk.c_str(), "tmpfs", 0, "size=8k") != 0) GTEST_SKIP() << "this user may not mount";
  const Outcome outcome = attend(disk + "/out");
  const bool empty = std::filesystem::is_empty(disk);
  ::umount(disk.c_str());
  expect_refusal(outcome, {"disk/out", "No space left on device"});
  EXPECT_TRUE(empty);
}

TEST_F(BadOutputs, FullStandardOutput) {
  expect_refusal(run_onchip_into_full_device({"attend", "--help"}), {"standard output"});
}

}  // namespace
}  // namespace onchip::test
