// What ARCHITECTURE.md says about includes, and what a library must never do, as functions of one file's text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onchip::test {

/// `text` without comments and string literals; line breaks stay.
std::string strip_comments_and_strings(std::string_view text);

/// Each line says which rule `text` breaks; `path` is relative to the repository, "src/core/problem.cpp".
std::vector<std::string> arrows_that_run_back(const std::string& path, std::string_view text);
std::vector<std::string> public_header_leaks(const std::string& path, std::string_view text);
std::vector<std::string> prints_or_exits(const std::string& path, std::string_view text);

}  // namespace onchip::test
