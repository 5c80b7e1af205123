// Requests and their news as bytes, for other ranks of the same program.
#pragma once

#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/inference/request_server.h"

namespace megatron {

/// How many fields a struct has. It does not compile with another number.
template <class Struct>
inline constexpr int kNumFields = 3;
template <>
inline constexpr int kNumFields<LogitBias> = 2;
template <>
inline constexpr int kNumFields<TokenLogprob> = 2;
template <>
inline constexpr int kNumFields<News> = 2;
template <>
inline constexpr int kNumFields<Command> = 4;
template <>
inline constexpr int kNumFields<TextRequest> = 5;
template <>
inline constexpr int kNumFields<Generation> = 5;
template <>
inline constexpr int kNumFields<SamplingParams> = 23;

/// Returns references to the fields of a struct.
template <class Struct>
auto fields_of(Struct& of) {
  if constexpr (kNumFields<Struct> == 2) {
    auto& [a, b] = of;
    return std::tie(a, b);
  } else if constexpr (kNumFields<Struct> == 3) {
    auto& [a, b, c] = of;
    return std::tie(a, b, c);
  } else if constexpr (kNumFields<Struct> == 4) {
    auto& [a, b, c, d] = of;
    return std::tie(a, b, c, d);
  } else if constexpr (kNumFields<Struct> == 5) {
    auto& [a, b, c, d, e] = of;
    return std::tie(a, b, c, d, e);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w] = of;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w);
  }
}

/// Writes values to bytes, or reads them in the same order. Of errors it has only UserError, and
/// throws others.
class Archive {
 public:
  Archive() = default;  ///< writes
  explicit Archive(std::string_view bytes) : left_(bytes), reads_(true) {}

  template <class T>
  void operator()(T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      copy(&value, sizeof value);
    } else if constexpr (std::is_same_v<T, std::exception_ptr>) {
      std::optional<UserError::Parts> parts;
      try {
        if (value) std::rethrow_exception(value);
      } catch (const UserError& error) {
        parts = error.parts();
      }
      (*this)(parts);
      if (parts) value = std::make_exception_ptr(UserError(*parts));
    } else if constexpr (requires { value.has_value(); }) {
      bool has = value.has_value();
      (*this)(has);
      if (has && !value) value.emplace();
      if (has) (*this)(*value);
    } else if constexpr (requires { value.resize(0); }) {
      std::size_t size = value.size();
      (*this)(size);
      value.resize(size);
      for (auto& element : value) (*this)(element);
    } else {
      std::apply([&](auto&... field) { ((*this)(field), ...); }, fields_of(value));
    }
  }
  std::string take() { return std::move(written_); }

 private:
  void copy(void* value, std::size_t size) {
    if (!reads_) {
      written_.append(static_cast<const char*>(value), size);
      return;
    }
    MEGATRON_CHECK(size <= left_.size(), "a message ends too early");
    std::memcpy(value, left_.data(), size);
    left_.remove_prefix(size);
  }

  std::string written_;
  std::string_view left_;
  bool reads_ = false;
};

template <class T>
std::string to_bytes(T value) {
  Archive archive;
  archive(value);
  return archive.take();
}

template <class T>
T from_bytes(std::string_view bytes) {
  T value;
  Archive archive(bytes);
  archive(value);
  return value;
}

}  // namespace megatron
