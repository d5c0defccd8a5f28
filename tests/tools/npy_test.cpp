#include "onchip/io/npy.hpp"

#include <gtest/gtest.h>

#include "onchip/input_error.hpp"
#include "tools/tensor_files.hpp"

namespace onchip::test {
namespace {

using cli::FileTensor;
using cli::InputError;
using cli::parse_npy;

std::string message_of(const std::string& file) {
  try {
    parse_npy(bytes_of(file), "q", "FILE");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string header(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

TEST(Npy, ReadsEveryVersion) {
  const std::string data(24, 'x');
  for (const int version : {1, 2, 3}) {
    const std::string file = npy_file(header("<f4", "False", "(2, 3)"), data, version);
    const FileTensor tensor = parse_npy(bytes_of(file), "q", "FILE");
    EXPECT_EQ(tensor.name, "q");
    EXPECT_STREQ(tensor.type->name, "F32");
    EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(tensor.bytes.size(), 24u);
  }
}

TEST(Npy, ReadsHeadersOfOtherWriters) {
  EXPECT_EQ(message_of(npy_file("{\"shape\":(3,),\"fortran_order\":False,\"descr\":\"<f4\"}", std::string(12, 'x'))),
            "");
  EXPECT_EQ(message_of(npy_file(header("|b1", "True", "(3,)"), "abc")), "") << "one dimension has no order";
  EXPECT_EQ(message_of(npy_file(header("<f8", "False", "()"), "12345678")), "");
  EXPECT_EQ(message_of(npy_file(header("<i8", "False", "(0, 5)"), "")), "");
}

TEST(Npy, RefusesAFileCutAtAnyByte) {
  const std::string file = npy_file("<f4", floats({2, 3}));
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(message_of(file.substr(0, size)), "") << "cut to " << size << " bytes";
  EXPECT_NE(message_of(file + "x"), "");
}

TEST(Npy, RefusesWhatItCannotRead) {
  const struct {
    std::string header;
    const char* mention;
  } cases[] = {
      {header("<f4", "True", "(2, 3)"), "Fortran order"},
      {header(">f4", "False", "(2, 3)"), ">f4"},
      {header("|V2", "False", "(2, 3)"), "bf16"},
      {header("|O", "False", "(2, 3)"), "|O"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3), }", "structured"},
      {header("<f4", "False", "(2, 4)"), "32"},
      {header("<f4", "False", "(-2, 3)"), "-2"},
      {header("<f4", "False", "(2.0, 3)"), "malformed"},
      {header("<f4", "False", "(99999999999999999999, 3)"), "99999999999999999999"},
      {header("<f4", "False", "(4611686018427387906, 4)"), "2^63"},
      {header("<f4", "Maybe", "(2, 3)"), "malformed"},
      {"{'descr': '<f4', 'fortran_order': False, }", "lacks"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", "descr"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}", "'x'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } x", "malformed"},
      {"{'descr': '<f4", "malformed"},
      {"{", "malformed"},
      {"", "malformed"},
      {header(
           "<f4", "False",
           "(" +
               [] {
                 std::string ones;
                 for (int i = 0; i < 40; ++i) ones += "1, ";
                 return ones;
               }() +
               ")"),
       "32 dimensions"},
  };
  for (const auto& bad : cases)
    EXPECT_NE(message_of(npy_file(bad.header, std::string(24, 'x'))).find(bad.mention), std::string::npos)
        << bad.header << ": " << message_of(npy_file(bad.header, std::string(24, 'x')));
}

TEST(Npy, RefusesOtherFormatsAndVersions) {
  EXPECT_NE(message_of("PK\3\4 a zip archive"), "");
  std::string file = npy_file("<f4", floats({2, 3}));
  file[6] = 4;
  EXPECT_NE(message_of(file).find("version 4.0"), std::string::npos);
}

}  // namespace
}  // namespace onchip::test
