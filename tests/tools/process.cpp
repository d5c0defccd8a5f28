#include "tools/process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "tools/temporary_folder.hpp"

namespace onchip::test {
namespace {

[[noreturn]] void become_onchip(const std::vector<std::string>& args, const std::string& out, const std::string& err,
                                std::optional<std::uint64_t> file_size_limit) {
  const int out_fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int err_fd = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(out_fd, STDOUT_FILENO);
  ::dup2(err_fd, STDERR_FILENO);
  if (file_size_limit) {
    const rlimit limit{*file_size_limit, *file_size_limit};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  std::vector<char*> argv = {const_cast<char*>(ONCHIP_BINARY)};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  ::execv(ONCHIP_BINARY, argv.data());
  ::_exit(127);
}

int status_of_onchip(const std::vector<std::string>& args, const std::string& out, const std::string& err,
                     std::optional<std::uint64_t> file_size_limit) {
  const pid_t child = ::fork();
  if (child == 0) become_onchip(args, out, err, file_size_limit);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Outcome run_onchip(const std::vector<std::string>& args, std::optional<std::uint64_t> file_size_limit) {
  const TemporaryFolder folder;
  const std::string out = folder.path("out"), err = folder.path("err");
  const int status = status_of_onchip(args, out, err, file_size_limit);
  return {status, read_text(out), read_text(err)};
}

Outcome run_onchip_into_full_device(const std::vector<std::string>& args) {
  const TemporaryFolder folder;
  const std::string err = folder.path("err");
  const int status = status_of_onchip(args, "/dev/full", err, {});
  return {status, "", read_text(err)};
}

void expect_refusal(const Outcome& outcome, const std::vector<std::string>& mentions) {
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("onchip: ")) << outcome.err;
  EXPECT_TRUE(outcome.err.ends_with("\n")) << outcome.err;
  for (const std::string& mention : mentions)
    EXPECT_NE(outcome.err.find(mention), std::string::npos) << "'" << mention << "' is not in: " << outcome.err;
}

}  // namespace onchip::test
