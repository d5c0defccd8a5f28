// A file that appears whole or not at all: written beside its final place under a temporary name, then renamed.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace onchip::cli {

/// Refuses a path that certainly cannot be written, before any work is done for it.
void check_writable_path(const std::string& path);

class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  /// Without commit(): removes the temporary file; what stood at `path` stays as it was.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_;       // as the user gave it, for messages
  std::string target_;     // with links resolved
  std::string temporary_;  // empty when the target is a device or a pipe, which is written to directly
  int fd_ = -1;
};

}  // namespace onchip::cli
