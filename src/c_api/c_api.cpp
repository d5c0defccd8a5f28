// The C functions over the C++ front. Each body runs inside guarded(), which no exception leaves.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <span>
#include <vector>

#include "c_api/arguments.hpp"

namespace onchip::c_api {
namespace {

static_assert(ONCHIP_F64 == static_cast<int>(DType::f64) && ONCHIP_F32 == static_cast<int>(DType::f32) &&
              ONCHIP_BF16 == static_cast<int>(DType::bf16) && ONCHIP_F16 == static_cast<int>(DType::f16) &&
              ONCHIP_E4M3 == static_cast<int>(DType::e4m3) && ONCHIP_E5M2 == static_cast<int>(DType::e5m2) &&
              ONCHIP_I8 == static_cast<int>(DType::i8) && ONCHIP_I32 == static_cast<int>(DType::i32) &&
              ONCHIP_BOOL == static_cast<int>(DType::boolean));
static_assert(ONCHIP_BACKEND_AUTO == static_cast<int>(Backend::automatic) &&
              ONCHIP_BACKEND_CPU == static_cast<int>(Backend::cpu) &&
              ONCHIP_BACKEND_STANDARD == static_cast<int>(Backend::standard) &&
              ONCHIP_BACKEND_CUDA == static_cast<int>(Backend::cuda));
static_assert(ONCHIP_BOTTOM_RIGHT == static_cast<int>(Alignment::bottom_right) &&
              ONCHIP_TOP_LEFT == static_cast<int>(Alignment::top_left));
static_assert(ONCHIP_PASS_FORWARD == static_cast<int>(Pass::forward) &&
              ONCHIP_PASS_BACKWARD == static_cast<int>(Pass::backward));
static_assert(ONCHIP_OK == static_cast<int>(StatusCode::ok) &&
              ONCHIP_INVALID_ARGUMENT == static_cast<int>(StatusCode::invalid_argument) &&
              ONCHIP_UNSUPPORTED == static_cast<int>(StatusCode::unsupported) &&
              ONCHIP_WORKSPACE_TOO_SMALL == static_cast<int>(StatusCode::workspace_too_small) &&
              ONCHIP_OUT_OF_MEMORY == static_cast<int>(StatusCode::out_of_memory) &&
              ONCHIP_INTERNAL == static_cast<int>(StatusCode::internal));

/// Of a fixed size, so that reporting an error cannot fail.
thread_local std::array<char, 1024> last_error{};

onchip_status failed(StatusCode code, const char* message) noexcept {
  const std::size_t length = std::min(std::strlen(message), last_error.size() - 1);
  std::memcpy(last_error.data(), message, length);
  last_error[length] = '\0';
  return static_cast<onchip_status>(code);
}

template <typename Body>
onchip_status guarded(Body body) noexcept {
  last_error[0] = '\0';
  try {
    body();
    return ONCHIP_OK;
  } catch (const Error& error) {
    return failed(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(StatusCode::out_of_memory, "memory: an allocation failed, expected room for the plan");
  } catch (const std::exception& error) {
    return failed(StatusCode::internal, error.what());
  } catch (...) {
    return failed(StatusCode::internal, "an exception of unknown type");
  }
}

/// Runs `call` with the caller's workspace, or lets it allocate one where that is NULL.
template <typename Problem>
Plan call(Plan (*with_workspace)(const Problem&, std::span<std::byte>), Plan (*allocating)(const Problem&),
          const Problem& problem, void* workspace, std::size_t bytes) {
  if (workspace != nullptr) return with_workspace(problem, {static_cast<std::byte*>(workspace), bytes});
  if (bytes != 0)
    fail(StatusCode::invalid_argument, fmt::format("workspace: NULL with {} bytes, expected its address", bytes));
  return allocating(problem);
}

void merge_tensors(const onchip_tensor* o_parts, const onchip_tensor* lse_parts, std::size_t count,
                   const onchip_tensor* o, const onchip_tensor* lse,
                   const std::function<void(const std::vector<Tensor>&, const std::vector<Tensor>&, const Tensor&,
                                            const Tensor&)>& merge_all) {
  require("o", o);
  if (count > 0) require("o_parts", o_parts), require("lse_parts", lse_parts);
  std::vector<Tensor> o_tensors, lse_tensors;
  for (std::size_t i = 0; i < count; ++i) {
    o_tensors.push_back(tensor_from(fmt::format("o_parts[{}]", i).c_str(), o_parts[i]));
    lse_tensors.push_back(tensor_from(fmt::format("lse_parts[{}]", i).c_str(), lse_parts[i]));
  }
  merge_all(o_tensors, lse_tensors, tensor_from("o", *o), lse == nullptr ? Tensor{} : tensor_from("lse", *lse));
}

/// Calls text_of(as_json) and copies what it returns.
template <typename Text>
void explain_into(std::int32_t format, char* buffer, std::size_t buffer_bytes, std::size_t* needed_bytes,
                  const Text& text_of) {
  if (format != ONCHIP_EXPLAIN_TEXT && format != ONCHIP_EXPLAIN_JSON)
    fail(StatusCode::invalid_argument,
         fmt::format("format: {}, expected ONCHIP_EXPLAIN_TEXT or ONCHIP_EXPLAIN_JSON", format));
  if (buffer == nullptr && buffer_bytes != 0)
    fail(StatusCode::invalid_argument, fmt::format("buffer: NULL with {} bytes, expected its address", buffer_bytes));
  const std::string text = text_of(format == ONCHIP_EXPLAIN_JSON);
  const std::size_t needed = text.size() + 1;
  if (needed_bytes != nullptr) *needed_bytes = needed;
  if (buffer == nullptr) return;
  if (buffer_bytes < needed)
    fail(StatusCode::workspace_too_small, fmt::format("buffer: {} bytes, expected at least {}", buffer_bytes, needed));
  std::memcpy(buffer, text.c_str(), needed);
}

}  // namespace
}  // namespace onchip::c_api

using namespace onchip::c_api;

onchip_tensor onchip_contiguous(const void* data, int32_t dtype, int32_t rank, const int64_t* shape) {
  onchip_tensor tensor{};
  tensor.data = const_cast<void*>(data);
  tensor.dtype = dtype;
  tensor.rank = rank;
  if (shape == nullptr) return tensor;
  std::int64_t stride = 1;
  for (std::int32_t d = std::min(rank, 4) - 1; d >= 0; --d) {
    tensor.shape[d] = shape[d];
    tensor.stride[d] = stride;
    static_cast<void>(
        __builtin_mul_overflow(stride, shape[d], &stride));  // too large a shape is refused where it is used
  }
  return tensor;
}

onchip_status onchip_plan(const onchip_attention* problem, int32_t pass, onchip_plan_info* info) {
  return guarded([&] {
    require("info", info);
    check_info(info);
    fill(info, onchip::plan(attention_from(problem), pass_from(pass)));
  });
}

onchip_status onchip_plan_decode(const onchip_decode_step* step, onchip_plan_info* info) {
  return guarded([&] {
    require("info", info);
    check_info(info);
    fill(info, onchip::plan(decode_from(step)));
  });
}

onchip_status onchip_forward(const onchip_attention* problem, void* workspace, size_t workspace_bytes,
                             onchip_plan_info* info) {
  return guarded([&] {
    check_info(info);
    fill(info, call<onchip::Attention>(onchip::forward, onchip::forward, attention_from(problem), workspace,
                                       workspace_bytes));
  });
}

onchip_status onchip_backward(const onchip_attention* problem, void* workspace, size_t workspace_bytes,
                              onchip_plan_info* info) {
  return guarded([&] {
    check_info(info);
    fill(info, call<onchip::Attention>(onchip::backward, onchip::backward, attention_from(problem), workspace,
                                       workspace_bytes));
  });
}

onchip_status onchip_decode(const onchip_decode_step* step, void* workspace, size_t workspace_bytes,
                            onchip_plan_info* info) {
  return guarded([&] {
    check_info(info);
    fill(info, call<onchip::Decode>(onchip::decode, onchip::decode, decode_from(step), workspace, workspace_bytes));
  });
}

onchip_status onchip_merge(const onchip_tensor* o_parts, const onchip_tensor* lse_parts, size_t num_parts,
                           const onchip_tensor* o, const onchip_tensor* lse) {
  return guarded([&] { merge_tensors(o_parts, lse_parts, num_parts, o, lse, onchip::merge); });
}

onchip_status onchip_merge_on_device(const onchip_tensor* o_parts, const onchip_tensor* lse_parts, size_t num_parts,
                                     const onchip_tensor* o, const onchip_tensor* lse, int32_t device, void* stream) {
  return guarded([&] {
    merge_tensors(o_parts, lse_parts, num_parts, o, lse,
                  [&](auto&&... tensors) { onchip::merge_on_device(tensors..., device, stream); });
  });
}

onchip_status onchip_explain(const onchip_attention* problem, int32_t pass, int32_t format, char* buffer,
                             size_t buffer_bytes, size_t* needed_bytes) {
  return guarded([&] {
    explain_into(format, buffer, buffer_bytes, needed_bytes, [&](bool as_json) {
      const onchip::Attention attention = attention_from(problem);
      return as_json ? onchip::explain_json(attention, pass_from(pass)) : onchip::explain(attention, pass_from(pass));
    });
  });
}

onchip_status onchip_explain_decode(const onchip_decode_step* step, int32_t format, char* buffer, size_t buffer_bytes,
                                    size_t* needed_bytes) {
  return guarded([&] {
    explain_into(format, buffer, buffer_bytes, needed_bytes, [&](bool as_json) {
      return as_json ? onchip::explain_json(decode_from(step)) : onchip::explain(decode_from(step));
    });
  });
}

const char* onchip_version(void) { return onchip::version(); }

const char* onchip_last_error(void) { return last_error.data(); }
