// The C++ reference against the NumPy one on the given cases: two programs written apart from one page.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "onchip/io/read_file.hpp"
#include "onchip/io/safetensors.hpp"
#include "reference/attention.hpp"
#include "support/case.hpp"

namespace onchip::test {
namespace {

constexpr double kTolerance = 1e-11;

struct File {
  explicit File(const std::string& path)
      : bytes(cli::read_file(path, cli::safetensors_payload, cli::safetensors_size)) {
    for (const cli::FileTensor& tensor : cli::parse_safetensors(bytes.bytes, path)) tensors[tensor.name] = tensor;
  }
  nlohmann::json metadata() const {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.bytes.data(), sizeof(length));
    const auto* header = reinterpret_cast<const char*>(bytes.bytes.data()) + sizeof(length);
    return nlohmann::json::parse(header, header + length)["__metadata__"];
  }

  cli::FileBytes bytes;
  std::map<std::string, cli::FileTensor> tensors;
};

TensorBuffer buffer(const cli::FileTensor& tensor) {
  TensorBuffer copy(*tensor.type->dtype, tensor.shape);
  if (!tensor.bytes.empty()) std::memcpy(copy.view().data, tensor.bytes.data(), tensor.bytes.size());
  return copy;
}

Case read_case(const File& file) {
  Case c;
  const std::map<std::string, TensorBuffer*> slots{{"q", &c.q},
                                                   {"k", &c.k},
                                                   {"v", &c.v},
                                                   {"bias", &c.bias},
                                                   {"mask", &c.mask},
                                                   {"alibi_slopes", &c.alibi_slopes},
                                                   {"sink", &c.sink},
                                                   {"cu_seqlens_q", &c.cu_seqlens_q},
                                                   {"cu_seqlens_k", &c.cu_seqlens_k},
                                                   {"seqused_k", &c.seqused_k},
                                                   {"page_table", &c.page_table},
                                                   {"k_scale", &c.k_scale},
                                                   {"v_scale", &c.v_scale},
                                                   {"dout", &c.dout}};
  for (const auto& [name, tensor] : file.tensors) *slots.at(name) = buffer(tensor);
  const auto options = nlohmann::json::parse(file.metadata()["options"].get<std::string>());
  Attention& a = c.options;
  a.causal = options.value("causal", false);
  a.softcap = options.value("softcap", 0.0);
  if (options.contains("scale")) a.softmax_scale = options["scale"].get<double>();
  if (options.contains("window")) {
    a.window_left = options["window"][0];
    a.window_right = options["window"][1];
  }
  if (options.value("top_left", false)) a.alignment = Alignment::top_left;
  return c;
}

void expect_same(const std::string& name, const std::vector<double>& ours, const std::vector<double>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size()) << name;
  for (std::size_t n = 0; n < ours.size(); ++n) {
    if (ours[n] == theirs[n]) continue;
    ASSERT_LE(std::abs(ours[n] - theirs[n]), kTolerance * (1 + std::abs(theirs[n]))) << name << "[" << n << "]";
  }
}

TEST(ReferenceVectors, TwoReferencesAgree) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ONCHIP_VECTORS)) {
    const std::string path = entry.path().string();
    const std::size_t suffix = path.find(".in.safetensors");
    if (suffix == std::string::npos) continue;
    SCOPED_TRACE(path);
    const Case c = read_case(File(path));
    const File expected(path.substr(0, suffix) + ".ref.safetensors");
    const Results r = exact_attention(c.backward_args(), c.gradients());
    const std::map<std::string, const std::vector<double>*> results{
        {"o", &r.o},   {"lse", &r.lse},     {"dq", &r.dq},      {"dk", &r.dk},
        {"dv", &r.dv}, {"dbias", &r.dbias}, {"dsink", &r.dsink}};
    for (const auto& [name, tensor] : expected.tensors) expect_same(name, *results.at(name), buffer(tensor).values());
    ++cases;
  }
  EXPECT_GE(cases, 45);
}

}  // namespace
}  // namespace onchip::test
