// The C structures as the C++ ones. Everything a C caller can get wrong that C++ types rule out is checked here:
// null pointers, struct_size, ranks and numbers that stand for enumerators. Failures throw onchip::Error.
#pragma once

#include <cstddef>

#include "onchip/onchip.h"
#include "onchip/onchip.hpp"

namespace onchip::c_api {

/// `name` names the tensor in messages.
Tensor tensor_from(const char* name, const onchip_tensor& tensor);
Attention attention_from(const onchip_attention* attention);
Decode decode_from(const onchip_decode_step* step);
Pass pass_from(std::int32_t pass);

/// Throws where `info`, unless it is null, is not one that fill() can write.
void check_info(const onchip_plan_info* info);
/// `info` may be null.
void fill(onchip_plan_info* info, const Plan& plan);

void require(const char* name, const void* pointer);
[[noreturn]] void fail(StatusCode code, const std::string& message);

}  // namespace onchip::c_api
