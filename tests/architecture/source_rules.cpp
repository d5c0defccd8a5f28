#include "architecture/source_rules.hpp"

#include <algorithm>
#include <regex>
#include <set>

namespace onchip::test {
namespace {

/// Folders whose headers a folder may include, besides its own.
struct Arrow {
  const char* from;
  std::vector<std::string> to;
};

const std::vector<Arrow>& arrows() {
  static const std::vector<Arrow> list{
      {"src/shared/", {}},
      {"src/model/", {"onchip", "core", "shared"}},
      {"src/cpu/", {"onchip", "core", "model", "shared"}},
      {"src/cuda/", {"onchip", "core", "model", "shared"}},
      {"src/core/", {"onchip", "model", "shared"}},
      {"src/c_api/", {"onchip", "core"}},
      {"tools/", {"onchip", "model"}},
      {"examples/", {"onchip"}},
      {"python/", {"onchip"}},
  };
  return list;
}

/// What the command line sees of the inside, besides the traffic model: conversions of one value, and facts about the
/// machine that attention itself does not give away.
const std::set<std::string>& tool_doors() {
  static const std::set<std::string> doors{"core/number_format.hpp", "core/threads.hpp", "cpu/host.hpp",
                                           "cpu/measure.hpp"};
  return doors;
}

/// What core sees of the backends: the list of implementations, memory and small kernels of a GPU, the facts about the
/// machine, vectorised conversion.
const std::set<std::string>& backend_doors() {
  static const std::set<std::string> doors{"cpu/implementations.hpp",
                                           "cuda/implementations.hpp",
                                           "cuda/device_steps.hpp",
                                           "cuda/workspace.hpp",
                                           "cpu/host.hpp",
                                           "cpu/row_kernels.hpp"};
  return doors;
}

constexpr std::string_view kProjectFolders[] = {"onchip", "core", "model", "cpu", "cuda", "shared", "c_api"};

struct Include {
  std::string text;
  bool quoted;
};

std::vector<Include> includes(std::string_view text) {
  static const std::regex pattern(R"re(^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"])re", std::regex::multiline);
  std::vector<Include> found;
  const std::string copy(text);
  for (auto match = std::sregex_iterator(copy.begin(), copy.end(), pattern); match != std::sregex_iterator(); ++match)
    found.push_back({(*match)[2], (*match)[1] == "\""});
  return found;
}

bool starts_with(const std::string& text, std::string_view start) { return text.compare(0, start.size(), start) == 0; }

bool is_standard_header(const std::string& name) {
  static const std::set<std::string> c_headers{"stdint.h", "stddef.h", "stdbool.h", "string.h", "math.h", "limits.h"};
  static const std::regex cpp_header("[a-z_]+");
  return c_headers.count(name) || std::regex_match(name, cpp_header);
}

}  // namespace

std::string strip_comments_and_strings(std::string_view text) {
  std::string out;
  for (std::size_t n = 0; n < text.size();) {
    const std::string_view rest = text.substr(n);
    if (rest.substr(0, 2) == "//") {
      n += std::min(rest.find('\n'), rest.size());
    } else if (rest.substr(0, 2) == "/*") {
      const std::size_t end = std::min(rest.find("*/"), rest.size() - 2) + 2;
      out.append(static_cast<std::size_t>(std::count(rest.begin(), rest.begin() + end, '\n')), '\n');
      n += end;
    } else if (rest.substr(0, 2) == "R\"") {
      const std::string close = ")" + std::string(rest.substr(2, rest.find('(') - 2)) + "\"";
      n += std::min(rest.find(close), rest.size() - close.size()) + close.size();
      out += "\"\"";
    } else if (rest[0] == '"') {
      std::size_t end = 1;
      while (end < rest.size() && rest[end] != '"') end += rest[end] == '\\' ? 2 : 1;
      n += std::min(end + 1, rest.size());
      out += "\"\"";
    } else if (rest.substr(0, 3) == "'\"'") {
      n += 3;
    } else {
      out += rest[0];
      ++n;
    }
  }
  return out;
}

std::vector<std::string> arrows_that_run_back(const std::string& path, std::string_view text) {
  std::vector<std::string> broken;
  const auto& list = arrows();
  const auto arrow = std::find_if(list.begin(), list.end(), [&](const Arrow& a) { return starts_with(path, a.from); });
  if (arrow == list.end()) return broken;
  const std::string own = std::string(arrow->from).substr(starts_with(path, "src/") ? 4 : 0);
  for (const Include& include : includes(text)) {
    const std::string folder = include.text.substr(0, include.text.find('/')) + "/";
    const std::string name = folder.substr(0, folder.size() - 1);
    if (include.text.find('/') == std::string::npos || folder == own) continue;
    if (std::find(std::begin(kProjectFolders), std::end(kProjectFolders), name) == std::end(kProjectFolders)) continue;
    if (starts_with(path, "tools/") && tool_doors().count(include.text)) continue;
    if (starts_with(path, "src/core/") && backend_doors().count(include.text)) continue;
    if (std::find(arrow->to.begin(), arrow->to.end(), name) == arrow->to.end())
      broken.push_back(path + " includes " + include.text + ", an arrow that runs back");
  }
  return broken;
}

std::vector<std::string> public_header_leaks(const std::string& path, std::string_view text) {
  std::vector<std::string> broken;
  for (const Include& include : includes(text))
    if (!starts_with(include.text, "onchip/") && !is_standard_header(include.text))
      broken.push_back(path + " includes " + include.text + ", expected the standard library alone");
  return broken;
}

std::vector<std::string> prints_or_exits(const std::string& path, std::string_view text) {
  static const std::regex pattern(
      R"re(\b(printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror|exit|_exit|_Exit|quick_exit|abort|terminate|assert)[ \t]*\(|\bstd::(cout|cerr|clog)\b|\bfmt::print)re");
  const std::string code = strip_comments_and_strings(text);
  std::vector<std::string> broken;
  for (auto match = std::sregex_iterator(code.begin(), code.end(), pattern); match != std::sregex_iterator(); ++match) {
    const auto line = 1 + std::count(code.begin(), code.begin() + match->position(), '\n');
    broken.push_back(path + ":" + std::to_string(line) + ": " + match->str() + ", a library neither prints nor exits");
  }
  return broken;
}

}  // namespace onchip::test
