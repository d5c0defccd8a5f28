#include "onchip/io/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "onchip/input_error.hpp"

namespace onchip::cli {
namespace {

constexpr int kMostLinks = 40;  // as the kernel follows

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

/// Where a file written to `path` ends up: links are followed, also to a file that is not there yet, so that a rename
/// makes or replaces the file and not the link.
std::string resolve(const std::string& path) {
  std::filesystem::path at = path;
  std::error_code error;
  for (int links = 0; std::filesystem::is_symlink(std::filesystem::symlink_status(at, error)); ++links) {
    if (links == kMostLinks) refuse("{}: cannot be written: {}", path, std::strerror(ELOOP));
    const std::filesystem::path target = std::filesystem::read_symlink(at, error);
    if (error) refuse("{}: cannot be written: {}", path, error.message());
    at = target.is_absolute() ? target : folder_of(at.string()) / target;
  }
  return at.string();
}

bool is_device(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

/// The permissions that open() would have given; mkstemp() is stricter.
mode_t default_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

void check_writable_path(const std::string& path) {
  struct stat status {};
  if (path.empty()) refuse("-o: empty, expected the file to write");
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
    refuse("{}: is a folder, expected a file to write", path);
  const std::string target = resolve(path);
  if (is_device(target)) return;
  const std::string folder = folder_of(target);
  if (::stat(folder.c_str(), &status) != 0)
    refuse("{}: cannot be written: folder {}: {}", path, folder, std::strerror(errno));
  if (!S_ISDIR(status.st_mode)) refuse("{}: cannot be written: {} is no folder", path, folder);
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    refuse("{}: cannot be written: folder {}: {}", path, folder, std::strerror(errno));
}

OutputFile::OutputFile(const std::string& path) : path_(path), target_(resolve(path)) {
  if (is_device(target_)) {
    fd_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    std::string name = folder_of(target_) + "/.onchip-XXXXXX";  // short: the target's name may be as long as allowed
    fd_ = ::mkstemp(name.data());
    if (fd_ >= 0) temporary_ = name;
  }
  if (fd_ < 0) fail(errno);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::fail(int error) const { refuse("{}: cannot be written: {}", path_, std::strerror(error)); }

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void OutputFile::commit() {
  if (temporary_.empty()) return;
  if (::fchmod(fd_, default_mode()) != 0 || ::fsync(fd_) != 0) fail(errno);
  const int closed = ::close(fd_);
  fd_ = -1;
  if (closed != 0 || ::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
  // The file is whole and in place; that its name outlives a power cut is asked for, but cannot be insisted on.
  const int folder = ::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    static_cast<void>(::fsync(folder));
    ::close(folder);
  }
}

}  // namespace onchip::cli
