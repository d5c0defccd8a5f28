// The library's inner error value: a code and one sentence. Exceptions exist only in the C++ front (core/api.cpp).
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "onchip/onchip.hpp"

namespace onchip {

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::ok; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
};

template <typename... Args>
Status invalid(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::invalid_argument, fmt::format(format, std::forward<Args>(args)...)};
}

template <typename... Args>
Status unsupported(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::unsupported, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace onchip

#define ONCHIP_RETURN_IF_ERROR(expression)                                      \
  do {                                                                          \
    if (::onchip::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
