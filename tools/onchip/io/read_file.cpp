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

constexpr std::size_t kMagicBytes = 8;
constexpr std::size_t kFirstBytes = 4096;

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

/// Of a regular file; nothing for a pipe.
std::optional<std::uint64_t> size_of_file(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) refuse("{}: cannot be read: {}", path, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) refuse("{}: is a folder, expected a file", path);
  if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) refuse("{}: is a device, expected a file or a pipe", path);
  if (!S_ISREG(status.st_mode)) return std::nullopt;
  return static_cast<std::uint64_t>(status.st_size);
}

}  // namespace

FileBytes read_file(const std::string& path, PayloadOffset payload_offset, WholeSize whole_size) {
  const Descriptor file(path);
  const std::optional<std::uint64_t> known = size_of_file(file.get(), path);
  // A few kilobytes tell another kind of file from one that is worth its memory.
  Bytes storage(kFirstBytes + kAlignment);
  std::size_t size = read_some(file.get(), path, storage.span().first(kFirstBytes));
  const std::size_t offset = payload_offset(storage.span().first(std::min(size, kMagicBytes)));
  const std::size_t lead = (kAlignment - offset % kAlignment) % kAlignment;
  std::memmove(storage.data() + lead, storage.data(), size);
  bool more = size == kFirstBytes;
  while (true) {
    const std::optional<std::uint64_t> whole = whole_size(storage.span().subspan(lead, size), path);
    // One byte more than expected, so that what does not end there is noticed.
    const std::uint64_t expected = known ? *known : std::min(whole.value_or(UINT64_MAX - 1), std::uint64_t{2} * size);
    if (!more || expected < size) break;
    Bytes larger(lead + static_cast<std::size_t>(expected) + 1);
    std::memcpy(larger.data() + lead, storage.data() + lead, size);
    storage = std::move(larger);
    size += read_some(file.get(), path, storage.span().subspan(lead + size));
    more = lead + size == storage.size();
  }
  const std::span<const std::byte> bytes = storage.span().subspan(lead, size);
  return {std::move(storage), bytes};
}

}  // namespace onchip::cli
