#include "onchip/io/safetensors_header.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "onchip/input_error.hpp"

namespace onchip::cli {
namespace {

/// Receives the JSON events in order. There are five places an event can happen in; depth is bounded by them.
class HeaderHandler {
 public:
  explicit HeaderHandler(const std::string& path) : path_(path) {}

  std::vector<HeaderEntry> take() { return std::move(entries_); }

  bool start_object(std::size_t) {
    if (place_ == Place::outside)
      place_ = Place::top;
    else if (place_ == Place::top)
      place_ = name_ == "__metadata__" ? Place::metadata : Place::entry;
    else
      unexpected("an object");
    return true;
  }

  bool key(std::string& key) {
    if (place_ == Place::top) {
      if (!names_.insert(key).second) refuse("{}: tensor {}: appears twice in the header", path_, shown(key));
      entry_ = HeaderEntry{};
      entry_.name = key;
      seen_.clear();
      offsets_.clear();
      name_ = key;
    } else if (place_ == Place::entry) {
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        refuse("{}: tensor {}: field {}, expected dtype, shape and data_offsets", path_, shown(name_), shown(key));
      if (!seen_.insert(key).second) refuse("{}: tensor {}: {} appears twice", path_, shown(name_), key);
      field_ = key;
    }
    return true;
  }

  bool end_object() {
    if (place_ == Place::entry) finish_entry();
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ != Place::entry || field_ == "dtype") unexpected("an array");
    place_ = field_ == "shape" ? Place::shape : Place::offsets;
    return true;
  }

  bool end_array() {
    place_ = Place::entry;
    return true;
  }

  bool string(std::string& text) {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::entry || field_ != "dtype") unexpected("text " + shown(text));
    entry_.type = find_file_type(text);
    if (entry_.type == nullptr)
      refuse("{}: tensor {}: dtype {}, expected F64, F32, BF16, F16, F8_E4M3, F8_E5M2, I8, I32 or BOOL", path_,
             shown(name_), shown(text));
    return true;
  }

  bool number_unsigned(std::uint64_t value) {
    if (place_ == Place::offsets) {
      offsets_.push_back(value);
    } else if (place_ == Place::shape) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        unexpected(std::to_string(value));
      entry_.shape.push_back(static_cast<std::int64_t>(value));
    } else {
      unexpected(std::to_string(value));
    }
    return true;
  }

  bool number_integer(std::int64_t value) { unexpected(std::to_string(value)); }
  bool number_float(double, const std::string& text) { unexpected(shown(text)); }
  bool boolean(bool value) { unexpected(value ? "true" : "false"); }
  bool null() { unexpected("null"); }
  bool binary(nlohmann::json::binary_t&) { unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    refuse("{}: the header is no valid JSON at its byte {}", path_, position);
  }

 private:
  enum class Place { outside, top, metadata, entry, shape, offsets };

  [[noreturn]] void unexpected(const std::string& what) {
    switch (place_) {
      case Place::outside:
        refuse("{}: the header is {}, expected a JSON object", path_, what);
      case Place::top:
        refuse("{}: tensor {}: {}, expected an object", path_, shown(name_), what);
      case Place::metadata:
        refuse("{}: __metadata__ holds {}, expected text only", path_, what);
      case Place::entry:
        refuse("{}: tensor {}: {} is {}, expected {}", path_, shown(name_), field_, what,
               field_ == "dtype" ? "text" : "an array");
      case Place::shape:
      case Place::offsets:
        break;
    }
    refuse("{}: tensor {}: {} holds {}, expected whole numbers from 0 to 2^63 − 1", path_, shown(name_), field_, what);
  }

  void finish_entry() {
    for (const char* field : {"dtype", "shape", "data_offsets"})
      if (!seen_.contains(field)) refuse("{}: tensor {}: {} is missing", path_, shown(name_), field);
    if (offsets_.size() != 2)
      refuse("{}: tensor {}: data_offsets holds {} numbers, expected 2", path_, shown(name_), offsets_.size());
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    entries_.push_back(std::move(entry_));
  }

  const std::string& path_;
  Place place_ = Place::outside;
  std::string name_;   // key of the top object
  std::string field_;  // key of a tensor's object
  std::set<std::string> names_, seen_;
  std::vector<std::uint64_t> offsets_;
  HeaderEntry entry_;
  std::vector<HeaderEntry> entries_;
};

}  // namespace

void check_header_begins(std::string_view text, const std::string& path) {
  if (text.empty() || text.front() != '{') refuse("{}: the header does not begin with '{{'", path);
}

std::vector<HeaderEntry> parse_safetensors_header(std::string_view text, const std::string& path) {
  check_header_begins(text, path);
  // The JSON reader takes a zero byte for the end of its input.
  if (text.find('\0') != std::string_view::npos) refuse("{}: the header holds a zero byte", path);
  HeaderHandler handler(path);
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  return handler.take();
}

}  // namespace onchip::cli
