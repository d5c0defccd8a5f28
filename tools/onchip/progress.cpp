#include "onchip/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace onchip::cli {
namespace {

constexpr std::size_t kBarWidth = 30;

}  // namespace

Progress::Progress(std::size_t total) : total_(total), visible_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::clear() const {
  if (visible_) std::fputs("\r\x1b[K", stderr);
}

void Progress::step(const std::string& label) {
  if (!visible_) return;
  const std::size_t filled = kBarWidth * std::min(done_, total_) / std::max<std::size_t>(total_, 1);
  const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '.');
  std::fputs(fmt::format("\r\x1b[K[{}] {}/{} {}", bar, done_, total_, label).c_str(), stderr);
  std::fflush(stderr);
  ++done_;
}

}  // namespace onchip::cli
