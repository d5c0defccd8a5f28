#include "onchip/tensor_inputs.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "onchip/input_error.hpp"
#include "onchip/io/npy.hpp"
#include "onchip/io/read_file.hpp"
#include "onchip/io/safetensors.hpp"

namespace onchip::cli {
namespace {

struct Input {
  const char* name;
  Tensor Attention::*member;
  const char* help;
  bool is_index = false;  // i32, and i64 where every value fits
};

constexpr Input kInputs[] = {
    {"q", &Attention::q, "queries [B, Sq, Hq, D], packed [total_q, Hq, D]"},
    {"k", &Attention::k, "keys [B, Sk, Hk, D], packed [total_k, Hk, D], paged [pages, page_size, Hk, D]"},
    {"v", &Attention::v, "values, as k with last dimension Dv"},
    {"bias", &Attention::bias, "added to the scores [1 or B, 1 or Hq, Sq, Sk]"},
    {"mask", &Attention::mask, "bool, true = may attend [1 or B, 1 or Hq, Sq, Sk]"},
    {"alibi_slopes", &Attention::alibi_slopes, "f32 [Hq] or [B, Hq]"},
    {"sink", &Attention::sink, "f32 [Hq], one more logit in each denominator"},
    {"cu_seqlens_q", &Attention::cu_seqlens_q, "i32 [B+1], where packed queries begin and end", true},
    {"cu_seqlens_k", &Attention::cu_seqlens_k, "i32 [B+1], where packed keys begin and end", true},
    {"seqused_k", &Attention::seqused_k, "i32 [B], keys of each sequence that exist", true},
    {"page_table", &Attention::page_table, "i32 [B, max_pages], pages of each sequence", true},
    {"k_scale", &Attention::k_scale, "f32 [1], [Hk], [B, Hk] or per token, for k of i8, e4m3, e5m2"},
    {"v_scale", &Attention::v_scale, "f32, as k_scale, for v"},
    {"dout", &Attention::dout, "gradient of o; asks for every gradient that has an input"},
};

constexpr const char* kResults[] = {"o", "lse", "dq", "dk", "dv", "dbias", "dsink"};

const Input& find_input(const FileTensor& tensor, const std::string& path) {
  for (const Input& input : kInputs)
    if (tensor.name == input.name) return input;
  for (const char* result : kResults)
    if (tensor.name == result)
      refuse("{}: tensor '{}' is a result of attention, expected inputs only: take it out", path, result);
  std::string names;
  for (const Input& input : kInputs) names += (names.empty() ? "" : ", ") + std::string(input.name);
  refuse("{}: tensor {} is no input of attention, expected some of {}", path, shown(tensor.name), names);
}

Bytes copied(std::span<const std::byte> bytes) {
  Bytes copy(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return copy;
}

/// Lengths are i32 here and often i64 elsewhere.
Bytes narrowed(const FileTensor& tensor, const std::string& path) {
  const std::size_t count = tensor.bytes.size() / sizeof(std::int64_t);
  Bytes narrow(count * sizeof(std::int32_t));
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t value = 0;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof value, sizeof value);
    if (value < std::numeric_limits<std::int32_t>::min() || value > std::numeric_limits<std::int32_t>::max())
      refuse("{}: tensor {}: {} at element {}, expected numbers that fit into 32 bits", path, shown(tensor.name), value,
             i);
    const auto fitting = static_cast<std::int32_t>(value);
    std::memcpy(narrow.data() + i * sizeof fitting, &fitting, sizeof fitting);
  }
  return narrow;
}

void check_booleans(const FileTensor& tensor, const std::string& path) {
  for (std::size_t i = 0; i < tensor.bytes.size(); ++i)
    if (const int value = std::to_integer<int>(tensor.bytes[i]); value > 1)
      refuse("{}: tensor {}: byte {} at element {}, expected 0 or 1 for bool", path, shown(tensor.name), value, i);
}

Tensor view_of(const void* data, DType dtype, const std::vector<std::int64_t>& shape) {
  Tensor view = contiguous(data, dtype, {1});
  view.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  std::int64_t stride = 1;
  for (int d = view.rank - 1; d >= 0; --d) {
    view.stride[d] = stride;
    stride *= std::max<std::int64_t>(view.shape[d], 1);
  }
  return view;
}

}  // namespace

void TensorInputs::add(const FileTensor& tensor, const std::string& path) {
  const Input& input = find_input(tensor, path);
  Tensor& slot = attention_.*input.member;
  if (slot.present()) refuse("{}: tensor '{}' was already given", path, input.name);
  if (tensor.shape.empty() || tensor.shape.size() > slot.shape.size())
    refuse("{}: tensor '{}': shape {}, expected {}", path, input.name, shape_text(tensor.shape), input.help);
  const bool is_i64 = std::string_view(tensor.type->name) == "I64";
  if (input.is_index && is_i64) {
    storage_.push_back(narrowed(tensor, path));
    slot = view_of(storage_.back().data(), DType::i32, tensor.shape);
    return;
  }
  if (!tensor.type->dtype)
    refuse("{}: tensor '{}': type {}, expected {}", path, input.name, tensor.type->name, input.help);
  if (tensor.type->dtype == DType::boolean) check_booleans(tensor, path);
  const std::byte* data = tensor.bytes.data();
  if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(tensor.type->bytes) != 0) {
    storage_.push_back(copied(tensor.bytes));
    data = storage_.back().data();
  }
  slot = view_of(data, *tensor.type->dtype, tensor.shape);
}

void TensorInputs::read_safetensors(const std::string& path) {
  FileBytes file = read_file(path, safetensors_payload, safetensors_size);
  const std::vector<FileTensor> tensors = parse_safetensors(file.bytes, path);
  storage_.push_back(std::move(file.storage));
  for (const FileTensor& tensor : tensors) add(tensor, path);
}

void TensorInputs::read_npy(const std::string& name, const std::string& path) {
  FileBytes file = read_file(path, npy_payload, npy_size);
  const FileTensor tensor = parse_npy(file.bytes, name, path);
  storage_.push_back(std::move(file.storage));
  add(tensor, path);
}

void TensorInputOptions::add(CLI::App& command) {
  command.add_option("IN.safetensors", safetensors, "File of tensors, each named as one of the options below");
  npy.resize(std::size(kInputs));
  for (std::size_t i = 0; i < std::size(kInputs); ++i) {
    std::string option = std::string("--") + kInputs[i].name;
    std::replace(option.begin(), option.end(), '_', '-');
    command.add_option(option, npy[i], kInputs[i].help)->type_name("FILE.npy")->group("Tensors, one file each");
  }
}

bool TensorInputOptions::any() const {
  return !safetensors.empty() || std::any_of(npy.begin(), npy.end(), [](const auto& path) { return !path.empty(); });
}

TensorInputs TensorInputOptions::read() const {
  TensorInputs inputs;
  if (!safetensors.empty()) inputs.read_safetensors(safetensors);
  for (std::size_t i = 0; i < npy.size(); ++i)
    if (!npy[i].empty()) inputs.read_npy(kInputs[i].name, npy[i]);
  return inputs;
}

}  // namespace onchip::cli
