// Safetensors headers that lie, each with what the refusal must mention. Every file has 32 bytes of data.
#pragma once

#include <string>
#include <vector>

namespace onchip::test {

struct BadHeader {
  const char* what;
  std::string header;
  std::vector<std::string> mentions;
};

inline std::vector<BadHeader> bad_headers() {
  const auto q = [](const std::string& fields) { return "{\"q\": {" + fields + "}}"; };
  const auto entry = [&](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return q("\"dtype\": " + dtype + ", \"shape\": " + shape + ", \"data_offsets\": " + offsets);
  };
  const std::string good_q = R"("q": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]})";
  const std::string half = R"({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]})";
  const auto deep = [](int levels) { return std::string(static_cast<std::size_t>(levels), '['); };
  return {
      {"no JSON", "hello", {"'{'"}},
      {"a list", "[1, 2]", {"'{'"}},
      {"cut JSON", "{" + good_q, {"JSON"}},
      {"text after the object", "{" + good_q + "} x", {"JSON"}},
      {"two objects", "{" + good_q + "}{}", {"JSON"}},
      {"zero byte after the object", "{" + good_q + "}" + std::string(3, '\0'), {"zero byte"}},
      {"comment", "{/**/" + good_q + "}", {"JSON"}},
      {"byte order mark", "\xEF\xBB\xBF{" + good_q + "}", {"'{'"}},
      {"broken UTF-8 in a name", "{\"\xFF\xFE\": " + half + "}", {"JSON"}},
      {"broken UTF-8 in a type", entry("\"\xC3(\"", "[8]", "[0, 32]"), {"JSON"}},
      {"a lone surrogate", "{\"\\ud800\": " + half + "}", {"JSON"}},
      {"unknown type", entry("\"F99\"", "[8]", "[0, 32]"), {"'q'", "F99", "F32"}},
      {"type in lower case", entry("\"f32\"", "[8]", "[0, 32]"), {"'q'", "f32"}},
      {"type that is a number", entry("32", "[8]", "[0, 32]"), {"'q'", "dtype", "32"}},
      {"type missing", q(R"("shape": [8], "data_offsets": [0, 32])"), {"'q'", "dtype", "missing"}},
      {"shape missing", q(R"("dtype": "F32", "data_offsets": [0, 32])"), {"'q'", "shape", "missing"}},
      {"offsets missing", q(R"("dtype": "F32", "shape": [8])"), {"'q'", "data_offsets", "missing"}},
      {"an unknown field", q(R"("dtype": "F32", "shape": [8], "data_offsets": [0, 32], "x": 1)"), {"'q'", "'x'"}},
      {"a field twice",
       q(R"("dtype": "F32", "dtype": "F32", "shape": [8], "data_offsets": [0, 32])"),
       {"'q'", "dtype", "twice"}},
      {"a tensor twice", "{\"q\": " + half + ", \"q\": " + half + "}", {"'q'", "twice"}},
      {"a tensor that is a number", "{\"q\": 3}", {"'q'", "3"}},
      {"a tensor that is null", "{\"q\": null}", {"'q'", "null"}},
      {"a tensor that is a list", "{\"q\": []}", {"'q'"}},
      {"negative size", entry("\"F32\"", "[-8]", "[0, 32]"), {"'q'", "shape", "-8"}},
      {"fractional size", entry("\"F32\"", "[8.5]", "[0, 32]"), {"'q'", "shape", "8.5"}},
      {"whole size written as a float", entry("\"F32\"", "[8.0]", "[0, 32]"), {"'q'", "shape", "8.0"}},
      {"size of 2^63", entry("\"F32\"", "[9223372036854775808]", "[0, 32]"), {"'q'", "9223372036854775808"}},
      {"size beyond 64 bits",
       entry("\"F32\"", "[99999999999999999999]", "[0, 32]"),
       {"'q'", "shape", "99999999999999999999"}},
      {"size as text", entry("\"F32\"", "[\"8\"]", "[0, 32]"), {"'q'", "shape"}},
      {"shape that is no list", entry("\"F32\"", "8", "[0, 32]"), {"'q'", "shape", "8"}},
      {"nested shape", entry("\"F32\"", "[[8]]", "[0, 32]"), {"'q'", "shape"}},
      {"product over 2^63", entry("\"F32\"", "[4294967296, 4294967296]", "[0, 32]"), {"'q'", "4294967296", "2^63"}},
      {"product that wraps to the right size",
       entry("\"F32\"", "[4611686018427387906, 4]", "[0, 32]"),
       {"'q'", "4611686018427387906", "2^63"}},
      {"offsets that do not fit the shape", entry("\"F32\"", "[7]", "[0, 32]"), {"'q'", "32", "28"}},
      {"offsets that do not fit the type", entry("\"F16\"", "[8]", "[0, 32]"), {"'q'", "32", "16"}},
      {"offsets reversed", entry("\"F32\"", "[8]", "[32, 0]"), {"'q'", "[32, 0]"}},
      {"offsets past the end", entry("\"F32\"", "[8]", "[4, 36]"), {"'q'", "[4, 36]", "32 bytes"}},
      {"offsets near 2^64",
       entry("\"F32\"", "[8]", "[18446744073709551584, 18446744073709551615]"),
       {"'q'", "18446744073709551584"}},
      {"negative offsets", entry("\"F32\"", "[8]", "[-32, 0]"), {"'q'", "data_offsets", "-32"}},
      {"one offset", entry("\"F32\"", "[8]", "[0]"), {"'q'", "data_offsets", "1"}},
      {"three offsets", entry("\"F32\"", "[8]", "[0, 16, 32]"), {"'q'", "data_offsets", "3"}},
      {"overlap",
       "{\"q\": " + half + R"(, "k": {"dtype": "F32", "shape": [5], "data_offsets": [12, 32]}})",
       {"'k'", "'q'", "overlap"}},
      {"the same bytes twice",
       "{" + good_q + R"(, "k": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}})",
       {"'k'", "'q'", "overlap"}},
      {"a hole",
       "{\"q\": " + half + R"(, "k": {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]}})",
       {"'k'", "24", "16"}},
      {"a hole at the start", entry("\"F32\"", "[4]", "[16, 32]"), {"'q'", "16", "0"}},
      {"bytes left over", "{\"q\": " + half + "}", {"32", "16"}},
      {"metadata that is no text", R"({"__metadata__": {"a": 1}, )" + good_q + "}", {"__metadata__", "1"}},
      {"metadata that nests", R"({"__metadata__": {"a": {"b": "c"}}, )" + good_q + "}", {"__metadata__"}},
      {"nested far down in a shape", entry("\"F32\"", deep(100'000), "[0, 32]"), {"'q'", "shape"}},
      {"nested far down in metadata", R"({"__metadata__": {"a": )" + deep(100'000), {"__metadata__"}},
  };
}

}  // namespace onchip::test
