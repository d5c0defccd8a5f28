// Options that cannot be, and help that is there.
#include <gtest/gtest.h>

#include "tools/process.hpp"
#include "tools/temporary_folder.hpp"
#include "tools/tensor_files.hpp"

namespace onchip::test {
namespace {

class Usage : public testing::Test {
 protected:
  void expect_refused(const std::vector<std::string>& options, const std::vector<std::string>& mentions) {
    const std::string in = folder_.write("in", safetensors_file(small_tensors()));
    std::vector<std::string> args = {"attend", in, "-o", folder_.path("out")};
    args.insert(args.end(), options.begin(), options.end());
    expect_refusal(run_onchip(args), mentions);
    EXPECT_EQ(folder_.files(), std::vector<std::string>{"in"});
  }

  TemporaryFolder folder_;
};

TEST_F(Usage, UnknownOptions) {
  expect_refused({"--casual"}, {"--casual"});
  expect_refused({"extra"}, {"extra"});
  expect_refusal(run_onchip({"--nonsense"}), {});
}

TEST_F(Usage, EmptyValues) {
  expect_refused({"--scale", ""}, {"--scale", "empty"});
  expect_refused({"--window", ""}, {"--window", "empty"});
}

TEST_F(Usage, BenchSecondsOutOfRange) {
  for (const char* seconds : {"-1", "0", "nan", "inf"})
    expect_refusal(run_onchip({"bench", "--seconds", seconds}), {"--seconds", seconds});
}

TEST_F(Usage, EmptyPlacesInLists) {
  for (const char* list : {"8,,9", ",8", "8,"})
    expect_refusal(run_onchip({"bench", "--seqlen", list}), {"--seqlen", list, "empty"});
  expect_refusal(run_onchip({"bench", "--seqlen", "8,x"}), {"--seqlen", "'x'"});
  expect_refusal(run_onchip({"explain", "--with", "bias,,mask"}), {"--with", "bias,,mask"});
}

TEST_F(Usage, UnknownImplementationsAreToldTheNamesFastestFirst) {
  expect_refused({"--at-least", "foo"}, {"'foo'", "cpu_decode, cpu_forward, standard_forward"});
}

TEST_F(Usage, UnknownCommands) {
  expect_refusal(run_onchip({}), {"subcommand"});
  expect_refusal(run_onchip({"atend"}), {"'atend'", "attend"});
}

TEST_F(Usage, ValuesThatCannotBeRead) {
  expect_refused({"--window", "3"}, {"--window", "'3'", "LEFT,RIGHT"});
  expect_refused({"--window", "a,b"}, {"--window", "'a,b'"});
  expect_refused({"--window", "1,2,3"}, {"--window", "'1,2,3'"});
  expect_refused({"--window", "99999999999999999999,0"}, {"--window"});
  expect_refused({"--scale", "much"}, {"--scale", "much"});
  expect_refused({"--threads", "1.5"}, {"--threads", "1.5"});
  expect_refused({"--backend", "gpu"}, {"--backend", "'gpu'", "standard"});
}

TEST_F(Usage, MissingParts) {
  expect_refusal(run_onchip({"attend", folder_.write("in", safetensors_file(small_tensors()))}), {"--output"});
  expect_refusal(run_onchip({"attend", "-o", folder_.path("out")}), {"input", "--q"});
}

TEST_F(Usage, HelpAndVersionSucceed) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--help"}, {"attend", "--help"}, {"explain", "--help"}, {"--version"}}) {
    const Outcome outcome = run_onchip(args);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.err, "");
    EXPECT_NE(outcome.out.find(args.back() == "--version" ? "onchip 0" : "Examples"), std::string::npos) << outcome.out;
  }
}

}  // namespace
}  // namespace onchip::test
