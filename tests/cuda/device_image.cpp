#include "cuda/device_image.hpp"

namespace onchip::test {

void DeviceImage::add(const void* host, std::size_t bytes) {
  copies_.push_back({static_cast<std::byte*>(const_cast<void*>(host)), bytes, DeviceMemory(0, bytes)});
  copies_.back().memory.write(host, bytes);
}

Tensor DeviceImage::moved(Tensor view) const {
  if (!view.present()) return view;
  const auto* address = static_cast<const std::byte*>(view.data);
  for (const Copy& copy : copies_)
    if (copy.host <= address && address < copy.host + copy.bytes) {
      view.data = static_cast<std::byte*>(copy.memory.data()) + (address - copy.host);
      return view;
    }
  view.data = nullptr;
  return view;
}

void DeviceImage::move(Attention& a) const {
  move({&a.q, &a.k, &a.v, &a.bias, &a.mask, &a.alibi_slopes, &a.sink, &a.cu_seqlens_q, &a.cu_seqlens_k, &a.seqused_k,
        &a.page_table, &a.k_scale, &a.v_scale, &a.o, &a.lse});
}

void DeviceImage::read(void* host) const {
  for (const Copy& copy : copies_)
    if (copy.host == host) copy.memory.read(copy.host, copy.bytes);
}

void DeviceImage::read_all() const {
  for (const Copy& copy : copies_) copy.memory.read(copy.host, copy.bytes);
}

}  // namespace onchip::test
