#include "cuda/host/cubin_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cuda/host/sha256.hpp"

namespace onchip::cuda {
namespace {

constexpr std::string_view kMagic = "onchip cubin 1\n";
constexpr std::size_t kDigestLength = 64;

/// A file descriptor that closes itself.
class File {
 public:
  File(const std::string& path, int flags, mode_t mode = 0)
      : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(); }

  bool opened() const { return descriptor_ >= 0; }
  bool close() {
    const bool closed = descriptor_ < 0 || ::close(descriptor_) == 0;
    descriptor_ = -1;
    return closed;
  }

  bool write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
  }

  bool read_all(std::string& bytes) {
    char buffer[1 << 16];
    while (true) {
      const ssize_t got = ::read(descriptor_, buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return got == 0;
      bytes.append(buffer, static_cast<std::size_t>(got));
    }
  }

 private:
  int descriptor_;
};

/// What the digest covers: the key's length and text, then the cubin.
std::string body(const CubinKey& key, const std::vector<char>& cubin) {
  std::string bytes = fmt::format("{}\n{}", key.text.size(), key.text);
  bytes.append(cubin.data(), cubin.size());
  return bytes;
}

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string CubinKey::file_name() const { return name + "-" + sha256(text).substr(0, 32) + ".cubin"; }

bool read_cubin(const std::string& folder, const CubinKey& key, std::vector<char>& cubin) {
  File file(folder + "/" + key.file_name(), O_RDONLY);
  std::string bytes;
  if (!file.opened() || !file.read_all(bytes)) return false;
  std::string_view rest = bytes;
  if (!rest.starts_with(kMagic) || rest.size() < kMagic.size() + kDigestLength) return false;
  rest.remove_prefix(kMagic.size());
  const std::string_view digest = rest.substr(0, kDigestLength);
  rest.remove_prefix(kDigestLength);
  const std::string prefix = body(key, {});
  if (sha256(rest) != digest || !rest.starts_with(prefix)) return false;
  rest.remove_prefix(prefix.size());
  cubin.assign(rest.begin(), rest.end());
  return !cubin.empty();
}

Status write_cubin(const std::string& folder, const CubinKey& key, const std::vector<char>& cubin) {
  static std::atomic<unsigned> counter{0};
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const std::string path = folder + "/" + key.file_name();
  const std::string temporary = fmt::format("{}.{}.{}.tmp", path, ::getpid(), counter.fetch_add(1));
  const std::string bytes = body(key, cubin);
  bool written = false;
  {
    File file(temporary, O_WRONLY | O_CREAT | O_EXCL, 0644);
    written = file.opened() && file.write(kMagic) && file.write(sha256(bytes)) && file.write(bytes) && file.close();
  }
  if (written && ::rename(temporary.c_str(), path.c_str()) == 0) return {};
  const int error = errno;
  ::unlink(temporary.c_str());
  return {StatusCode::internal, fmt::format("{}: could not be written: {}", path, std::strerror(error))};
}

std::string cache_folder() {
  if (std::getenv("ONCHIP_CACHE") != nullptr) return environment("ONCHIP_CACHE");
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) return cache + "/onchip";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/onchip";
  return {};
}

std::string prepared_folder() { return environment("ONCHIP_KERNELS"); }

}  // namespace onchip::cuda
