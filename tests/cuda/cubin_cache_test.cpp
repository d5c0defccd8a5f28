// Compiled kernels on disk: found again, and everything that can go wrong with files.
#include "cuda/host/cubin_cache.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <iterator>

#include "cuda/fake_fixture.hpp"
#include "cuda/host/sha256.hpp"

namespace onchip::test {
namespace {

using cuda::CubinKey;
using cuda::read_cubin;
using cuda::write_cubin;

const CubinKey kKey{"kernel-sm_90a", "sources 1\noptions -a\n"};

std::vector<char> content(std::size_t size, char seed = 1) {
  std::vector<char> bytes(size);
  for (std::size_t n = 0; n < size; ++n) bytes[n] = static_cast<char>(n * 7 + static_cast<std::size_t>(seed));
  return bytes;
}

TEST(Sha256, GivesTheStandardsExamples) {
  EXPECT_EQ(cuda::sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(cuda::sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(cuda::sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(cuda::sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(CubinCache, ReturnsWhatWasWritten) {
  const TemporaryFolder folder;
  std::vector<char> cubin;
  EXPECT_FALSE(read_cubin(folder.root(), kKey, cubin));
  const std::string inner = folder.root() + "/made/here";
  ASSERT_TRUE(write_cubin(inner, kKey, content(5000)).ok());
  ASSERT_TRUE(read_cubin(inner, kKey, cubin));
  EXPECT_EQ(cubin, content(5000));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(inner), {}), 1);
  ASSERT_TRUE(write_cubin(inner, kKey, content(100, 9)).ok()) << "an entry can be replaced";
  ASSERT_TRUE(read_cubin(inner, kKey, cubin));
  EXPECT_EQ(cubin, content(100, 9));
}

TEST(CubinCache, EveryPartOfTheKeyCounts) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_cubin(folder.root(), kKey, content(10)).ok());
  std::vector<char> cubin;
  EXPECT_FALSE(read_cubin(folder.root(), {kKey.name, kKey.text + "x"}, cubin));
  EXPECT_FALSE(read_cubin(folder.root(), {kKey.name + "x", kKey.text}, cubin));
  // The same file name with another key inside, as if digests had collided.
  const CubinKey other{kKey.name, "sources 2\n"};
  std::filesystem::rename(folder.root() + "/" + kKey.file_name(), folder.root() + "/" + other.file_name());
  EXPECT_FALSE(read_cubin(folder.root(), other, cubin));
}

TEST(CubinCache, BrokenEntriesAreMissing) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_cubin(folder.root(), kKey, content(64)).ok());
  const std::string path = folder.path(kKey.file_name());
  const std::string good = read_text(path);
  std::vector<char> cubin;
  for (std::size_t length = 0; length < good.size(); ++length) {
    folder.write(kKey.file_name(), good.substr(0, length));
    EXPECT_FALSE(read_cubin(folder.root(), kKey, cubin)) << "cut to " << length;
  }
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    folder.write(kKey.file_name(), bad);
    EXPECT_FALSE(read_cubin(folder.root(), kKey, cubin)) << "bit flipped at " << at;
  }
  folder.write(kKey.file_name(), good + "x");
  EXPECT_FALSE(read_cubin(folder.root(), kKey, cubin)) << "one byte more";
  ASSERT_TRUE(write_cubin(folder.root(), kKey, content(64)).ok()) << "a broken entry is replaced";
  EXPECT_TRUE(read_cubin(folder.root(), kKey, cubin));
}

TEST(CubinCache, SaysThatAFolderCannotBeWritten) {
  const TemporaryFolder folder;
  folder.write("file", "");
  for (const std::string& bad : {folder.root() + "/file/inside", std::string("/proc/onchip")}) {
    const Status status = write_cubin(bad, kKey, content(10));
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(bad), std::string::npos) << status.message();
  }
}

TEST(CubinCache, AFullDiskLeavesNothingBehind) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};  // bytes a file may have
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(write_cubin(folder.root(), kKey, content(5000)).ok() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "a write that did not fit was called a success";
  EXPECT_TRUE(folder.files().empty());
}

TEST(CubinCache, ManyProcessesAtOnceSeeWholeEntries) {
  const TemporaryFolder folder;
  std::vector<pid_t> children;
  for (int c = 0; c < 6; ++c) {
    const pid_t child = fork();
    if (child == 0) {
      int wrong = 0;
      for (int n = 0; n < 200; ++n) {
        if (!write_cubin(folder.root(), kKey, content(20'000)).ok()) ++wrong;
        std::vector<char> cubin;
        if (!read_cubin(folder.root(), kKey, cubin) || cubin != content(20'000)) ++wrong;
      }
      _exit(wrong == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(folder.files().size(), 1u) << "temporary files are left";
}

TEST(CubinCache, FindsItsFolder) {
  setenv("ONCHIP_CACHE", "/a", 1);
  EXPECT_EQ(cuda::cache_folder(), "/a");
  setenv("ONCHIP_CACHE", "", 1);
  EXPECT_EQ(cuda::cache_folder(), "") << "empty turns it off";
  unsetenv("ONCHIP_CACHE");
  setenv("XDG_CACHE_HOME", "/b", 1);
  EXPECT_EQ(cuda::cache_folder(), "/b/onchip");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/c", 1);
  EXPECT_EQ(cuda::cache_folder(), "/c/.cache/onchip");
  unsetenv("HOME");
  EXPECT_EQ(cuda::cache_folder(), "");
}

}  // namespace
}  // namespace onchip::test
