#include "core/normalise.hpp"

#include <algorithm>
#include <cstdint>

namespace onchip {
namespace {

struct Named {
  const char* name;
  Tensor Attention::*member;
};

constexpr Named kTensors[] = {{"q", &Attention::q},
                              {"k", &Attention::k},
                              {"v", &Attention::v},
                              {"bias", &Attention::bias},
                              {"mask", &Attention::mask},
                              {"alibi_slopes", &Attention::alibi_slopes},
                              {"sink", &Attention::sink},
                              {"cu_seqlens_q", &Attention::cu_seqlens_q},
                              {"cu_seqlens_k", &Attention::cu_seqlens_k},
                              {"seqused_k", &Attention::seqused_k},
                              {"page_table", &Attention::page_table},
                              {"k_scale", &Attention::k_scale},
                              {"v_scale", &Attention::v_scale},
                              {"o", &Attention::o},
                              {"lse", &Attention::lse},
                              {"dout", &Attention::dout},
                              {"dq", &Attention::dq},
                              {"dk", &Attention::dk},
                              {"dv", &Attention::dv},
                              {"dbias", &Attention::dbias},
                              {"dsink", &Attention::dsink}};

/// The last stride is kept: it must be 1 even where nothing is reached by it.
void normalise_strides(Tensor& tensor) {
  const auto shape_end = tensor.shape.begin() + tensor.rank;
  const bool empty = std::find(tensor.shape.begin(), shape_end, 0) != shape_end;
  std::fill(shape_end, tensor.shape.end(), 0);
  std::fill(tensor.stride.begin() + tensor.rank, tensor.stride.end(), 0);
  std::uint64_t contiguous_stride = 1;  // wraps for shapes that are refused later
  for (int d = tensor.rank; d-- > 0;) {
    if (empty && d + 1 < tensor.rank)
      tensor.stride[d] = 0;
    else if (tensor.shape[d] <= 1)
      tensor.stride[d] = static_cast<std::int64_t>(contiguous_stride);
    contiguous_stride *= static_cast<std::uint64_t>(tensor.shape[d]);
  }
}

}  // namespace

Status normalise(Attention& args) {
  for (const auto& [name, member] : kTensors) {
    Tensor& tensor = args.*member;
    const int largest = static_cast<int>(tensor.shape.size());
    if (tensor.rank < 0 || tensor.rank > largest)
      return invalid("{}: rank {}, expected 0 (absent) to {}", name, tensor.rank, largest);
    if (tensor.present())
      normalise_strides(tensor);
    else
      tensor = Tensor{};
  }
  return {};
}

}  // namespace onchip
