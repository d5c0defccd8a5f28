#include "onchip/io/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "onchip/input_error.hpp"
#include "onchip/io/safetensors_header.hpp"

namespace onchip::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and read without conversion");

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own bound

std::uint64_t header_length(std::span<const std::byte> file) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  return length;
}

std::uint64_t checked_header_length(std::span<const std::byte> file, const std::string& path) {
  const std::uint64_t length = header_length(file);
  if (length > kLongestHeader)
    refuse("{}: header length {}, expected at most {}: this is no safetensors file", path, length, kLongestHeader);
  return length;
}

std::string_view header_text(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < kLengthBytes)
    refuse("{}: {} bytes, expected a safetensors file, which begins with the 8-byte length of its header", path,
           file.size());
  const std::uint64_t length = checked_header_length(file, path);
  const std::uint64_t rest = file.size() - kLengthBytes;
  if (length > rest)
    refuse("{}: header length {}, but {} bytes follow it: the file is cut short or no safetensors file", path, length,
           rest);
  return {reinterpret_cast<const char*>(file.data()) + kLengthBytes, static_cast<std::size_t>(length)};
}

void check_entry(const HeaderEntry& entry, const std::string& path, std::uint64_t data_size) {
  const std::string name = shown(entry.name);
  if (entry.begin > entry.end || entry.end > data_size)
    refuse("{}: tensor {}: data_offsets [{}, {}], expected a range within the {} bytes of data", path, name,
           entry.begin, entry.end, data_size);
  const std::optional<std::int64_t> bytes = byte_count(entry.shape, *entry.type);
  if (!bytes) refuse("{}: tensor {}: shape {}, expected fewer than 2^63 bytes", path, name, shape_text(entry.shape));
  if (static_cast<std::uint64_t>(*bytes) != entry.end - entry.begin)
    refuse("{}: tensor {}: data_offsets [{}, {}] hold {} bytes, expected {} for shape {} of {}", path, name,
           entry.begin, entry.end, entry.end - entry.begin, *bytes, shape_text(entry.shape), entry.type->name);
}

/// The ranges, in order, tile the data: no gap, no overlap, nothing left at the end.
void check_tiling(const std::vector<HeaderEntry>& entries, const std::string& path, std::uint64_t data_size) {
  std::vector<const HeaderEntry*> order;
  order.reserve(entries.size());
  for (const HeaderEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const HeaderEntry* a, const HeaderEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t end = 0;
  const HeaderEntry* previous = nullptr;
  for (const HeaderEntry* entry : order) {
    if (entry->begin < end)
      refuse("{}: tensor {}: data_offsets [{}, {}] overlap those of {}, which end at {}", path, shown(entry->name),
             entry->begin, entry->end, shown(previous->name), end);
    if (entry->begin > end)
      refuse("{}: tensor {}: data_offsets [{}, {}], expected to begin at {}: the bytes between belong to no tensor",
             path, shown(entry->name), entry->begin, entry->end, end);
    end = entry->end;
    previous = entry;
  }
  if (end != data_size) refuse("{}: {} bytes of data, expected {}, where the last tensor ends", path, data_size, end);
}

}  // namespace

std::size_t safetensors_payload(std::span<const std::byte> first_bytes) {
  if (first_bytes.size() < kLengthBytes) return 0;
  return static_cast<std::size_t>(header_length(first_bytes)) + kLengthBytes;
}

std::optional<std::uint64_t> safetensors_size(std::span<const std::byte> beginning, const std::string& path) {
  if (beginning.size() <= kLengthBytes) return std::nullopt;
  const std::uint64_t length = checked_header_length(beginning, path);
  const std::uint64_t there = std::min<std::uint64_t>(length, beginning.size() - kLengthBytes);
  const std::string_view text(reinterpret_cast<const char*>(beginning.data()) + kLengthBytes, there);
  check_header_begins(text, path);
  if (there < length) return std::nullopt;
  std::uint64_t end = 0;
  for (const HeaderEntry& entry : parse_safetensors_header(text, path)) end = std::max(end, entry.end);
  return kLengthBytes + length + std::min(end, std::uint64_t{1} << 62);
}

std::vector<FileTensor> parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  const std::string_view header = header_text(file, path);
  const std::span<const std::byte> data = file.subspan(kLengthBytes + header.size());
  std::vector<HeaderEntry> entries = parse_safetensors_header(header, path);
  for (const HeaderEntry& entry : entries) check_entry(entry, path, data.size());
  check_tiling(entries, path, data.size());
  std::vector<FileTensor> tensors;
  tensors.reserve(entries.size());
  for (HeaderEntry& entry : entries)
    tensors.push_back({std::move(entry.name), entry.type, std::move(entry.shape),
                       data.subspan(entry.begin, entry.end - entry.begin)});
  return tensors;
}

void write_safetensors(OutputFile& file, std::span<const NamedTensor> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::vector<std::span<const std::byte>> parts;
  std::int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::vector<std::int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
    const FileType& type = file_type(tensor.dtype);
    const std::int64_t bytes = byte_count(shape, type).value();
    header[name] = {{"dtype", type.name}, {"shape", shape}, {"data_offsets", {offset, offset + bytes}}};
    parts.emplace_back(static_cast<const std::byte*>(tensor.data), static_cast<std::size_t>(bytes));
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  const std::uint64_t length = text.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(text)));
  for (const auto& part : parts) file.write(part);
}

}  // namespace onchip::cli
