// onchip._core: the C interface for Python. Arrays come in through DLPack or the buffer protocol and are never copied;
// the GIL is released while the library computes.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "onchip/onchip.h"

namespace nb = nanobind;

namespace {

/// Any array; whether it may be written is looked at by hand.
using Array = nb::ndarray<nb::ro>;

struct NamedTensor {
  const char* name;
  onchip_tensor onchip_attention::*member;
  bool written;  // by some call
};

constexpr NamedTensor kTensors[] = {
    {"q", &onchip_attention::q, false},
    {"k", &onchip_attention::k, false},
    {"v", &onchip_attention::v, false},
    {"bias", &onchip_attention::bias, false},
    {"mask", &onchip_attention::mask, false},
    {"alibi_slopes", &onchip_attention::alibi_slopes, false},
    {"sink", &onchip_attention::sink, false},
    {"cu_seqlens_q", &onchip_attention::cu_seqlens_q, false},
    {"cu_seqlens_k", &onchip_attention::cu_seqlens_k, false},
    {"seqused_k", &onchip_attention::seqused_k, false},
    {"page_table", &onchip_attention::page_table, false},
    {"k_scale", &onchip_attention::k_scale, false},
    {"v_scale", &onchip_attention::v_scale, false},
    {"o", &onchip_attention::o, true},
    {"lse", &onchip_attention::lse, true},
    {"dout", &onchip_attention::dout, false},
    {"dq", &onchip_attention::dq, true},
    {"dk", &onchip_attention::dk, true},
    {"dv", &onchip_attention::dv, true},
    {"dbias", &onchip_attention::dbias, true},
    {"dsink", &onchip_attention::dsink, true},
};

struct NamedStepTensor {
  const char* name;
  onchip_tensor onchip_decode_step::*member;
};

constexpr NamedStepTensor kStepTensors[] = {
    {"k_new", &onchip_decode_step::k_new},
    {"v_new", &onchip_decode_step::v_new},
    {"rotary_cos", &onchip_decode_step::rotary_cos},
    {"rotary_sin", &onchip_decode_step::rotary_sin},
};

struct Options {
  std::optional<double> softmax_scale;
  double softcap = 0;
  bool causal = false;
  std::int64_t window_left = -1, window_right = -1;
  bool top_left = false;
  std::int32_t backend = 0;
  std::string at_least;
  std::int32_t num_threads = 0;
  bool allow_tf32 = false, batch_invariant = false;
  std::int64_t max_seqlen_q = 0, max_seqlen_k = 0;
  std::uintptr_t stream = 0;
  bool rotary_interleaved = false;
};

nb::object error_types[6];  // by onchip_status

[[noreturn]] void raise(onchip_status status, const std::string& message) {
  PyErr_SetString(error_types[status].ptr(), message.c_str());
  throw nb::python_error();
}

void check(onchip_status status) {
  if (status != ONCHIP_OK) raise(status, onchip_last_error());
}

std::int32_t dtype_of(const std::string& name, nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  const auto is = [&](Code code, int bits) {
    return type.code == static_cast<std::uint8_t>(code) && type.bits == bits && type.lanes == 1;
  };
  if (is(Code::Float, 64)) return ONCHIP_F64;
  if (is(Code::Float, 32)) return ONCHIP_F32;
  if (is(Code::Bfloat, 16)) return ONCHIP_BF16;
  if (is(Code::Float, 16)) return ONCHIP_F16;
  if (is(Code::Float8_E4M3FN, 8)) return ONCHIP_E4M3;
  if (is(Code::Float8_E5M2, 8)) return ONCHIP_E5M2;
  if (is(Code::Int, 8)) return ONCHIP_I8;
  if (is(Code::Int, 32)) return ONCHIP_I32;
  if (is(Code::Bool, 8)) return ONCHIP_BOOL;
  raise(ONCHIP_INVALID_ARGUMENT, name + ": an element type of code " + std::to_string(type.code) + " and " +
                                     std::to_string(type.bits) +
                                     " bits, expected f64, f32, bf16, f16, e4m3, e5m2, int8, int32 or bool");
}

/// What a call works on, and the arrays that it keeps alive.
class Arguments {
 public:
  Arguments(const nb::dict& tensors, const Options& options) {
    for (const auto& [key, value] : tensors) add(nb::cast<std::string>(key), value);
    apply(options);
    step_.attention = &attention_;
    step_.rotary_interleaved = options.rotary_interleaved;
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  const onchip_attention* attention() const { return &attention_; }
  const onchip_decode_step* step() const { return &step_; }

  onchip_tensor view(const std::string& name, nb::handle value, bool written = false) {
    Array array;
    if (!nb::try_cast(value, array))
      raise(ONCHIP_INVALID_ARGUMENT, name + ": " + nb::cast<std::string>(nb::repr(value.type())) +
                                         ", expected an array that DLPack or the buffer protocol describes");
    nb::ndarray<> writable;
    if (written && !nb::try_cast(value, writable))
      raise(ONCHIP_INVALID_ARGUMENT, name + ": read-only, expected an array that may be written");
    if (array.ndim() < 1 || array.ndim() > 4)
      raise(ONCHIP_INVALID_ARGUMENT, name + ": " + std::to_string(array.ndim()) + " dimensions, expected 1 to 4");
    const int device = array.device_type() == nb::device::cpu::value ? -1 : array.device_id();
    if (array.device_type() != nb::device::cpu::value && array.device_type() != nb::device::cuda::value)
      raise(ONCHIP_UNSUPPORTED, name + ": memory of DLPack device type " + std::to_string(array.device_type()) +
                                    ", expected host memory or a CUDA device");
    if (arrays_.empty()) attention_.device = device;
    if (device != attention_.device)
      raise(ONCHIP_INVALID_ARGUMENT, name + ": on device " + std::to_string(device) + ", expected " +
                                         std::to_string(attention_.device) + " as the first tensor (−1: host memory)");
    onchip_tensor tensor{};
    tensor.data = const_cast<void*>(array.data());
    tensor.dtype = dtype_of(name, array.dtype());
    tensor.rank = static_cast<std::int32_t>(array.ndim());
    for (std::size_t d = 0; d < array.ndim(); ++d) {
      tensor.shape[d] = static_cast<std::int64_t>(array.shape(d));
      tensor.stride[d] = array.stride(d);
    }
    arrays_.push_back(std::move(array));
    return tensor;
  }

  int device() const { return attention_.device; }

 private:
  void add(const std::string& name, nb::handle value) {
    if (value.is_none()) return;
    for (const NamedTensor& tensor : kTensors)
      if (name == tensor.name) {
        attention_.*tensor.member = view(name, value, tensor.written);
        return;
      }
    for (const NamedStepTensor& tensor : kStepTensors)
      if (name == tensor.name) {
        step_.*tensor.member = view(name, value);
        return;
      }
    raise(ONCHIP_INVALID_ARGUMENT, name + ": no tensor has this name");
  }

  void apply(const Options& options) {
    attention_.has_softmax_scale = options.softmax_scale.has_value();
    attention_.softmax_scale = options.softmax_scale.value_or(0);
    attention_.softcap = options.softcap;
    attention_.causal = options.causal;
    attention_.window_left = options.window_left;
    attention_.window_right = options.window_right;
    attention_.alignment = options.top_left ? ONCHIP_TOP_LEFT : ONCHIP_BOTTOM_RIGHT;
    attention_.backend = options.backend;
    attention_.at_least = options.at_least.empty() ? nullptr : options.at_least.c_str();
    attention_.num_threads = options.num_threads;
    attention_.allow_tf32 = options.allow_tf32;
    attention_.batch_invariant = options.batch_invariant;
    attention_.max_seqlen_q = options.max_seqlen_q;
    attention_.max_seqlen_k = options.max_seqlen_k;
    attention_.stream = reinterpret_cast<void*>(options.stream);
  }

  onchip_attention attention_ = onchip_attention_init();
  onchip_decode_step step_ = onchip_decode_step_init();
  std::deque<Array> arrays_;
};

template <typename Call>
std::string implementation_of(Call call) {
  onchip_plan_info info = onchip_plan_info_init();
  onchip_status status;
  std::string error;
  {
    nb::gil_scoped_release released;
    status = call(&info);
    if (status != ONCHIP_OK) error = onchip_last_error();
  }
  if (status != ONCHIP_OK) raise(status, error);
  return info.implementation;
}

std::string forward(const nb::dict& tensors, const Options& options) {
  const Arguments arguments(tensors, options);
  return implementation_of(
      [&](onchip_plan_info* info) { return onchip_forward(arguments.attention(), nullptr, 0, info); });
}

std::string backward(const nb::dict& tensors, const Options& options) {
  const Arguments arguments(tensors, options);
  return implementation_of(
      [&](onchip_plan_info* info) { return onchip_backward(arguments.attention(), nullptr, 0, info); });
}

std::string decode(const nb::dict& tensors, const Options& options) {
  const Arguments arguments(tensors, options);
  return implementation_of([&](onchip_plan_info* info) { return onchip_decode(arguments.step(), nullptr, 0, info); });
}

std::string explain(const std::string& what, const nb::dict& tensors, const Options& options, bool json) {
  const Arguments arguments(tensors, options);
  const std::int32_t format = json ? ONCHIP_EXPLAIN_JSON : ONCHIP_EXPLAIN_TEXT;
  const auto write = [&](char* buffer, std::size_t bytes, std::size_t* needed) {
    if (what == "decode") return onchip_explain_decode(arguments.step(), format, buffer, bytes, needed);
    const std::int32_t pass = what == "backward" ? ONCHIP_PASS_BACKWARD : ONCHIP_PASS_FORWARD;
    return onchip_explain(arguments.attention(), pass, format, buffer, bytes, needed);
  };
  std::size_t needed = 0;
  check(write(nullptr, 0, &needed));
  std::string text(needed, '\0');
  check(write(text.data(), needed, nullptr));
  text.resize(needed - 1);
  return text;
}

void merge(const std::vector<nb::object>& o_parts, const std::vector<nb::object>& lse_parts, nb::object o,
           nb::object lse, std::uintptr_t stream) {
  if (o_parts.size() != lse_parts.size())
    raise(ONCHIP_INVALID_ARGUMENT, "lse_parts: " + std::to_string(lse_parts.size()) + " of them, expected " +
                                       std::to_string(o_parts.size()) + " as o_parts");
  Arguments arguments({}, {});
  std::vector<onchip_tensor> o_views, lse_views;
  for (std::size_t i = 0; i < o_parts.size(); ++i) {
    o_views.push_back(arguments.view("o_parts[" + std::to_string(i) + "]", o_parts[i]));
    lse_views.push_back(arguments.view("lse_parts[" + std::to_string(i) + "]", lse_parts[i]));
  }
  const onchip_tensor o_view = arguments.view("o", o, true), lse_view = arguments.view("lse", lse, true);
  static_cast<void>(implementation_of([&](onchip_plan_info*) {
    if (arguments.device() < 0)
      return onchip_merge(o_views.data(), lse_views.data(), o_views.size(), &o_view, &lse_view);
    return onchip_merge_on_device(o_views.data(), lse_views.data(), o_views.size(), &o_view, &lse_view,
                                  arguments.device(), reinterpret_cast<void*>(stream));
  }));
}

}  // namespace

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);
  nb::class_<Options>(m, "Options")
      .def(
          "__init__",
          [](Options* self, std::optional<double> softmax_scale, double softcap, bool causal, std::int64_t window_left,
             std::int64_t window_right, bool top_left, std::int32_t backend, std::string at_least,
             std::int32_t num_threads, bool allow_tf32, bool batch_invariant, std::int64_t max_seqlen_q,
             std::int64_t max_seqlen_k, std::uintptr_t stream, bool rotary_interleaved) {
            new (self) Options{softmax_scale,   softcap,      causal,       window_left, window_right,
                               top_left,        backend,      at_least,     num_threads, allow_tf32,
                               batch_invariant, max_seqlen_q, max_seqlen_k, stream,      rotary_interleaved};
          },
          nb::arg("softmax_scale").none(), nb::arg("softcap"), nb::arg("causal"), nb::arg("window_left"),
          nb::arg("window_right"), nb::arg("top_left"), nb::arg("backend"), nb::arg("at_least"), nb::arg("num_threads"),
          nb::arg("allow_tf32"), nb::arg("batch_invariant"), nb::arg("max_seqlen_q"), nb::arg("max_seqlen_k"),
          nb::arg("stream"), nb::arg("rotary_interleaved"));
  m.def("set_error_types", [](nb::object invalid, nb::object unsupported, nb::object memory, nb::object internal) {
    error_types[ONCHIP_INVALID_ARGUMENT] = invalid;
    error_types[ONCHIP_UNSUPPORTED] = unsupported;
    error_types[ONCHIP_OUT_OF_MEMORY] = memory;
    error_types[ONCHIP_WORKSPACE_TOO_SMALL] = error_types[ONCHIP_INTERNAL] = internal;
  });
  m.def("forward", &forward, "Writes o and lse; returns the implementation that ran.");
  m.def("backward", &backward, "Writes the gradients that are there; returns the implementation that ran.");
  m.def("decode", &decode, "Appends, attends, writes o and lse; returns the implementation that ran.");
  m.def("explain", &explain, "The plan as text or JSON.");
  m.def("merge", &merge, "Merges partial results into o and lse.");
  m.def("version", &onchip_version, "MAJOR.MINOR.PATCH");
}
