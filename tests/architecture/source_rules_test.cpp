#include "architecture/source_rules.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

namespace onchip::test {
namespace {

using Rule = std::function<std::vector<std::string>(const std::string&, std::string_view)>;

bool is_source(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".hpp" || extension == ".cpp" || extension == ".h" || extension == ".c" || extension == ".cuh";
}

/// Applies a rule to every source below `folder` and returns how many there were.
int check_folder(const std::string& folder, const Rule& rule) {
  const std::filesystem::path root = ONCHIP_SOURCE_DIR;
  if (!std::filesystem::exists(root / folder)) return 0;
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
    if (!entry.is_regular_file() || !is_source(entry.path())) continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    for (const std::string& broken : rule(std::filesystem::relative(entry.path(), root).string(), text.str()))
      ADD_FAILURE() << broken;
    ++files;
  }
  return files;
}

TEST(Architecture, ArrowsPointOneWay) {
  int files = 0;
  for (const char* folder : {"src", "tools", "examples", "python"}) files += check_folder(folder, arrows_that_run_back);
  EXPECT_GT(files, 30);
}

TEST(Architecture, PublicHeadersIncludeTheStandardLibraryAlone) {
  EXPECT_GE(check_folder("include", public_header_leaks), 1);
}

TEST(Architecture, TheLibraryNeitherPrintsNorExits) {
  EXPECT_GT(check_folder("src", prints_or_exits), 20);
  check_folder("include", prints_or_exits);
}

TEST(SourceRules, SeeArrowsThatRunBack) {
  EXPECT_EQ(arrows_that_run_back("src/shared/x.hpp", "#include \"core/problem.hpp\"\n").size(), 1u);
  EXPECT_EQ(arrows_that_run_back("src/model/x.cpp", "#include <vector>\n#include \"cpu/host.hpp\"\n").size(), 1u);
  EXPECT_EQ(arrows_that_run_back("src/core/x.cpp", "  #  include \"cpu/forward.hpp\"\n").size(), 1u);
  EXPECT_EQ(arrows_that_run_back("src/cpu/x.cpp", "#include \"c_api/x.hpp\"\n#include \"cuda/x.hpp\"\n").size(), 2u);
  EXPECT_EQ(arrows_that_run_back("tools/onchip/x.cpp", "#include \"core/problem.hpp\"\n").size(), 1u);
}

TEST(SourceRules, AcceptArrowsThatPointDown) {
  EXPECT_TRUE(arrows_that_run_back("src/core/x.cpp", "#include \"cpu/implementations.hpp\"\n").empty());
  EXPECT_TRUE(arrows_that_run_back("src/cpu/x.cpp", "#include \"core/views.hpp\"\n#include \"cpu/y.hpp\"\n").empty());
  EXPECT_TRUE(arrows_that_run_back("src/cpu/x.cpp", "#include \"hwy/highway.h\"\n#include <sys/stat.h>\n").empty());
  EXPECT_TRUE(arrows_that_run_back("src/core/x.cpp", "// #include \"cpu/forward.hpp\"\n").empty());
}

TEST(SourceRules, SeeLeaksOfPublicHeaders) {
  EXPECT_EQ(public_header_leaks("include/onchip/x.hpp", "#include <fmt/format.h>\n#include \"core/x.hpp\"\n").size(),
            2u);
  EXPECT_EQ(public_header_leaks("include/onchip/x.hpp", "#include <unistd.h>\n").size(), 1u);
  EXPECT_TRUE(public_header_leaks("include/onchip/x.hpp", "#include <span>\n#include <stdint.h>\n").empty());
}

TEST(SourceRules, SeePrintsAndExits) {
  EXPECT_EQ(prints_or_exits("x", "std::cout << 1;\nexit(1);\nstd::fprintf(stderr, \"\");\nfmt::print(\"\");").size(),
            4u);
  EXPECT_TRUE(prints_or_exits("x", "// printf(\nsnprintf(b, n, \"exit(1)\");\n/* abort() */ on_exit_path(1);").empty());
}

TEST(SourceRules, CommentsAndStringsAreStripped) {
  EXPECT_EQ(strip_comments_and_strings("a // b\nc /* d\n */ e \"f \\\" g\" R\"x(h \" i)x\" j"),
            "a \nc \n e \"\" \"\" j");
  EXPECT_EQ(strip_comments_and_strings("f('\"'); exit(1);"), "f(); exit(1);");
}

}  // namespace
}  // namespace onchip::test
