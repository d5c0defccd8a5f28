#pragma once

#include <string>
#include <vector>

namespace onchip::test {

/// A folder that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& root() const { return root_; }
  std::string path(const std::string& name) const { return root_ + "/" + name; }
  std::string write(const std::string& name, const std::string& content) const;
  std::vector<std::string> files() const;

 private:
  std::string root_;
};

std::string read_text(const std::string& path);

}  // namespace onchip::test
