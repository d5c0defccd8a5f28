#include "onchip/io/output_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "onchip/input_error.hpp"
#include "tools/temporary_folder.hpp"
#include "tools/tensor_files.hpp"

namespace onchip::test {
namespace {

using cli::InputError;
using cli::OutputFile;

TEST(OutputFile, AppearsOnCommitOnly) {
  const TemporaryFolder folder;
  OutputFile file(folder.path("out"));
  file.write(bytes_of("hello"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("out")));
  file.commit();
  EXPECT_EQ(read_text(folder.path("out")), "hello");
  EXPECT_EQ(folder.files(), std::vector<std::string>{"out"});
}

TEST(OutputFile, LeavesNothingWithoutCommit) {
  const TemporaryFolder folder;
  folder.write("out", "before");
  {
    OutputFile file(folder.path("out"));
    file.write(bytes_of("half"));
  }
  EXPECT_EQ(read_text(folder.path("out")), "before");
  EXPECT_EQ(folder.files(), std::vector<std::string>{"out"});
}

TEST(OutputFile, KeepsTheLinkThatItIsReachedBy) {
  const TemporaryFolder folder;
  folder.write("real", "before");
  std::filesystem::create_symlink(folder.path("real"), folder.path("link"));
  OutputFile file(folder.path("link"));
  file.write(bytes_of("after"));
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("link")));
  EXPECT_EQ(read_text(folder.path("real")), "after");
}

TEST(OutputFile, FollowsALinkToAFileThatIsNotThereYet) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("real", folder.path("link"));
  OutputFile file(folder.path("link"));
  file.write(bytes_of("new"));
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("link")));
  EXPECT_EQ(read_text(folder.path("real")), "new");
  std::filesystem::create_symlink("round", folder.path("round"));
  EXPECT_THROW(OutputFile(folder.path("round")), InputError);
}

TEST(OutputFile, TakesTheLongestName) {
  const TemporaryFolder folder;
  const std::string name(255, 'x');
  OutputFile file(folder.path(name));
  file.commit();
  EXPECT_EQ(folder.files(), std::vector<std::string>{name});
}

TEST(OutputFile, HasTheUsualPermissions) {
  const TemporaryFolder folder;
  const mode_t mask = ::umask(022);
  OutputFile file(folder.path("out"));
  file.commit();
  ::umask(mask);
  struct stat status {};
  ASSERT_EQ(::stat(folder.path("out").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
}

TEST(OutputFile, WritesToDevicesInPlace) {
  OutputFile file("/dev/null");
  file.write(bytes_of("gone"));
  file.commit();
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(OutputFile, ReportsAFullDisk) {
  OutputFile file("/dev/full");
  EXPECT_THROW(file.write(bytes_of("x")), InputError);
}

TEST(OutputFile, RefusesFoldersBeforeAnyWork) {
  const TemporaryFolder folder;
  EXPECT_THROW(cli::check_writable_path(folder.path("")), InputError);
  EXPECT_THROW(cli::check_writable_path(folder.path("none/out")), InputError);
  EXPECT_THROW(cli::check_writable_path(folder.write("file", "x") + "/out"), InputError);
  EXPECT_THROW(cli::check_writable_path(""), InputError);
  EXPECT_NO_THROW(cli::check_writable_path(folder.path("out")));
}

}  // namespace
}  // namespace onchip::test
