#include "onchip/io/read_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "onchip/input_error.hpp"

namespace onchip::cli {
namespace {

constexpr std::size_t kFirstBytes = 8;
constexpr std::size_t kFirstGuess = std::size_t{1} << 20;  // for files that do not say their size

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) refuse("{}: cannot be opened: {}", path, std::strerror(errno));
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Reads until `into` is full or the file ends; returns how much came.
std::size_t read_some(int fd, const std::string& path, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = ::read(fd, into.data() + done, into.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse("{}: cannot be read: {}", path, std::strerror(errno));
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

std::size_t expected_size(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) refuse("{}: cannot be read: {}", path, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) refuse("{}: is a folder, expected a file", path);
  return S_ISREG(status.st_mode) ? static_cast<std::size_t>(status.st_size) : kFirstGuess;
}

}  // namespace

FileBytes read_file(const std::string& path, PayloadOffset payload_offset) {
  const Descriptor file(path);
  std::size_t capacity = std::max(expected_size(file.get(), path), kFirstBytes);
  std::byte first[kFirstBytes];
  std::size_t size = read_some(file.get(), path, first);
  const std::size_t lead = (kAlignment - payload_offset({first, size}) % kAlignment) % kAlignment;
  Bytes storage(lead + capacity + 1);  // one more than expected, so that a file that grew is noticed
  std::memcpy(storage.data() + lead, first, size);
  while (true) {
    size += read_some(file.get(), path, storage.span().subspan(lead + size));
    if (lead + size < storage.size()) break;
    Bytes larger(storage.size() * 2);
    std::memcpy(larger.data(), storage.data(), storage.size());
    storage = std::move(larger);
  }
  const std::span<const std::byte> bytes = storage.span().subspan(lead, size);
  return {std::move(storage), bytes};
}

}  // namespace onchip::cli
