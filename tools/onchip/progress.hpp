// A progress bar on standard error, where that is a terminal; nothing elsewhere.
#pragma once

#include <cstddef>
#include <string>

namespace onchip::cli {

class Progress {
 public:
  explicit Progress(std::size_t total);
  /// Wipes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows that `label` is next.
  void step(const std::string& label);
  /// Makes room for a line on standard output; the next step shows the bar again.
  void clear() const;

 private:
  std::size_t total_;
  std::size_t done_ = 0;
  bool visible_;
};

}  // namespace onchip::cli
