#include "onchip/io/safetensors.hpp"

#include <gtest/gtest.h>

#include "onchip/input_error.hpp"
#include "onchip/io/read_file.hpp"
#include "tools/bad_headers.hpp"
#include "tools/tensor_files.hpp"

namespace onchip::test {
namespace {

using cli::FileTensor;
using cli::InputError;
using cli::parse_safetensors;

std::string message_of(const std::string& file) {
  try {
    parse_safetensors(bytes_of(file), "FILE");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Safetensors, ReadsWhatIsThere) {
  Tensors tensors = small_tensors();
  tensors["mask"] = {"BOOL", {1, 1, 2, 2}, std::string("\1\0\1\1", 4)};
  tensors["empty"] = {"BF16", {0, 5}, ""};
  const std::string file = safetensors_file(tensors);
  const std::vector<FileTensor> read = parse_safetensors(bytes_of(file), "FILE");
  ASSERT_EQ(read.size(), tensors.size());
  for (const FileTensor& tensor : read) {
    const FileContent& wanted = tensors.at(tensor.name);
    EXPECT_EQ(tensor.type->name, wanted.dtype);
    EXPECT_EQ(tensor.shape, wanted.shape);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()), wanted.bytes);
  }
}

TEST(Safetensors, AcceptsMetadataAndAnEmptyFile) {
  EXPECT_EQ(message_of(safetensors_file("{}", "")), "");
  EXPECT_EQ(message_of(safetensors_file(R"({"__metadata__": {"a": "b", "c": "d"}})", "")), "");
}

TEST(Safetensors, AcceptsTensorsInAnyOrderOfTheirData) {
  EXPECT_EQ(message_of(safetensors_file(R"({"a": {"dtype": "I8", "shape": [3], "data_offsets": [2, 5]},
      "b": {"data_offsets": [0, 2], "shape": [1, 2], "dtype": "I8"}})",
                                        "12345")),
            "");
}

TEST(Safetensors, RefusesAFileCutAtAnyByte) {
  const std::string file = safetensors_file(small_tensors());
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(message_of(file.substr(0, size)), "") << "cut to " << size << " bytes";
  EXPECT_NE(message_of(file + "x"), "");
}

TEST(Safetensors, RefusesLyingLengths) {
  for (const std::uint64_t length : {~std::uint64_t{0}, ~std::uint64_t{0} - 7, ~std::uint64_t{0} - 8,
                                     std::uint64_t{1} << 63, std::uint64_t{100'000'001}, std::uint64_t{3}}) {
    std::string file = safetensors_file("{}", "");
    std::memcpy(file.data(), &length, sizeof length);
    EXPECT_NE(message_of(file).find("header length " + std::to_string(length)), std::string::npos) << message_of(file);
  }
}

TEST(Safetensors, RefusesLyingHeaders) {
  for (const BadHeader& bad : bad_headers()) {
    const std::string message = message_of(safetensors_file(bad.header, std::string(32, '\0')));
    EXPECT_NE(message, "") << bad.what;
    for (const std::string& mention : bad.mentions)
      EXPECT_NE(message.find(mention), std::string::npos) << bad.what << ": '" << mention << "' not in: " << message;
  }
}

TEST(Safetensors, SurvivesEveryByteChanged) {
  const std::string file = safetensors_file(small_tensors());
  for (std::size_t i = 0; i < file.size(); ++i)
    for (const char change : {'\0', '\xFF', '"', '[', '9', '-'}) {
      std::string changed = file;
      changed[i] = change;
      static_cast<void>(message_of(changed));  // accepted or refused, but never a fault
    }
}

}  // namespace
}  // namespace onchip::test
