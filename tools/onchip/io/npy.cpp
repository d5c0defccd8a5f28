#include "onchip/io/npy.hpp"

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "onchip/input_error.hpp"

namespace onchip::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kVersionEnd = 8;
constexpr std::size_t kMaxRank = 32;  // NumPy's own bound

constexpr std::pair<std::string_view, const char*> kTypes[] = {
    {"<f8", "F64"}, {"<f4", "F32"}, {"<f2", "F16"}, {"|i1", "I8"},  {"<i4", "I32"}, {"<i8", "I64"}, {"|b1", "BOOL"},
    {"<i2", "I16"}, {"|u1", "U8"},  {"<u2", "U16"}, {"<u4", "U32"}, {"<u8", "U64"}, {"<i1", "I8"},  {"<b1", "BOOL"}};

/// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } in any order of keys.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  void parse() {
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !descr_)
        descr_ = quoted();
      else if (key == "fortran_order" && !fortran_order_)
        fortran_order_ = boolean();
      else if (key == "shape" && !shape_)
        shape_ = tuple();
      else
        refuse("{}: header key {}, expected descr, fortran_order and shape, once each", path_, shown(key));
      if (accept(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (at_ != text_.size()) malformed();
    if (!descr_ || !fortran_order_ || !shape_)
      refuse("{}: the header lacks one of descr, fortran_order and shape", path_);
  }

  std::string_view descr() const { return *descr_; }
  bool fortran_order() const { return *fortran_order_; }
  const std::vector<std::int64_t>& shape() const { return *shape_; }

 private:
  [[noreturn]] void malformed() const {
    refuse("{}: the header is malformed at its byte {}, expected what numpy.save writes", path_, at_);
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }

  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) malformed();
  }

  std::string_view quoted() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote == '[') refuse("{}: a structured array, expected one plain type", path_);
    if (quote != '\'' && quote != '"') malformed();
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) malformed();
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return inside;
  }

  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    malformed();
  }

  std::int64_t size() {
    skip_space();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range || (error == std::errc() && value < 0))
      refuse("{}: the shape holds {}, expected whole numbers from 0 to 2^63 − 1", path_,
             shown(text_.substr(at_, static_cast<std::size_t>(end - text_.data()) - at_)));
    if (error != std::errc()) malformed();
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> sizes;
    expect('(');
    while (!accept(')')) {
      if (sizes.size() == kMaxRank) refuse("{}: more than {} dimensions", path_, kMaxRank);
      sizes.push_back(size());
      if (accept(',')) continue;
      expect(')');
      break;
    }
    return sizes;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
  std::optional<std::string_view> descr_;
  std::optional<bool> fortran_order_;
  std::optional<std::vector<std::int64_t>> shape_;
};

struct Extent {
  std::size_t begin, length;
};

/// Where the header's dictionary lies, whether or not all of it is there.
Extent header_extent(std::span<const std::byte> file, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.size() < kVersionEnd || text.substr(0, kMagic.size()) != kMagic)
    refuse("{}: {} bytes that do not begin with \\x93NUMPY and a version, expected a .npy file", path, text.size());
  const auto byte = [&](std::size_t i) { return std::to_integer<std::size_t>(file[i]); };
  if (byte(6) < 1 || byte(6) > 3 || byte(7) != 0)
    refuse("{}: format version {}.{}, expected 1.0, 2.0 or 3.0", path, byte(6), byte(7));
  const std::size_t length_bytes = byte(6) == 1 ? 2 : 4;
  const std::size_t begin = kVersionEnd + length_bytes;
  std::size_t length = 0;
  if (text.size() < begin) refuse("{}: {} bytes, the file is cut short in its header", path, text.size());
  for (std::size_t i = 0; i < length_bytes; ++i) length |= byte(kVersionEnd + i) << (8 * i);
  return {begin, length};
}

std::string_view header_text(std::span<const std::byte> file, const std::string& path) {
  const auto [begin, length] = header_extent(file, path);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (length > text.size() - begin)
    refuse("{}: header length {}, but {} bytes follow it: the file is cut short", path, length, text.size() - begin);
  return text.substr(begin, length);
}

const FileType& type_of(std::string_view descr, const std::string& path) {
  for (const auto& [known, name] : kTypes)
    if (descr == known) return *find_file_type(name);
  refuse("{}: type {}, expected little-endian <f8, <f4, <f2, |i1, <i4, <i8 or |b1 (bf16 and fp8: use safetensors)",
         path, shown(descr));
}

}  // namespace

std::size_t npy_payload(std::span<const std::byte>) { return 0; }

std::optional<std::uint64_t> npy_size(std::span<const std::byte> beginning, const std::string& path) {
  const auto [begin, length] = header_extent(beginning, path);
  if (length > beginning.size() - begin) return std::nullopt;
  HeaderParser parser(header_text(beginning, path), path);
  parser.parse();
  const std::optional<std::int64_t> bytes = byte_count(parser.shape(), type_of(parser.descr(), path));
  return begin + length + static_cast<std::uint64_t>(bytes.value_or(std::int64_t{1} << 62));
}

FileTensor parse_npy(std::span<const std::byte> file, const std::string& name, const std::string& path) {
  const std::string_view header = header_text(file, path);
  HeaderParser parser(header, path);
  parser.parse();
  const FileType& type = type_of(parser.descr(), path);
  if (parser.fortran_order() && parser.shape().size() > 1)
    refuse("{}: Fortran order, expected C order (save numpy.ascontiguousarray(x))", path);
  const std::byte* begin = reinterpret_cast<const std::byte*>(header.data()) + header.size();
  const auto rest = static_cast<std::size_t>(file.data() + file.size() - begin);
  const std::optional<std::int64_t> bytes = byte_count(parser.shape(), type);
  if (!bytes) refuse("{}: shape {}, expected fewer than 2^63 bytes", path, shape_text(parser.shape()));
  if (static_cast<std::uint64_t>(*bytes) != rest)
    refuse("{}: {} bytes of data, expected {} for shape {} of {}", path, rest, *bytes, shape_text(parser.shape()),
           type.name);
  return {name, &type, parser.shape(), {begin, rest}};
}

}  // namespace onchip::cli
