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

template <class T, class... Others>
inline constexpr bool kIsOneOf = (std::is_same_v<T, Others> || ...);

/// Returns references to the fields of a struct. With another number of them it does not compile.
template <class T>
auto fields_of(T& of) {
  if constexpr (kIsOneOf<T, LogitBias, TokenLogprob, News, OutputConstraint>) {
    auto& [a, b] = of;
    return std::tie(a, b);
  } else if constexpr (kIsOneOf<T, SamplingSite, ServingRound, UserError::Parts>) {
    auto& [a, b, c] = of;
    return std::tie(a, b, c);
  } else if constexpr (kIsOneOf<T, ServingCommand, SampledToken>) {
    auto& [a, b, c, d] = of;
    return std::tie(a, b, c, d);
  } else if constexpr (kIsOneOf<T, Update>) {
    auto& [a, b, c, d, e, f, g, h] = of;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (kIsOneOf<T, TextRequest>) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = of;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (kIsOneOf<T, Generation>) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = of;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  } else {
    static_assert(kIsOneOf<T, SamplingParams>);
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2, c2,
           d2, e2, f2, g2, h2] = of;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z,
                    a2, b2, c2, d2, e2, f2, g2, h2);
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
  bool is_at_end() const { return left_.empty(); }

 private:
  void copy(void* value, std::size_t size) {
    if (!reads_) {
      written_.append(static_cast<const char*>(value), size);
      return;
    }
    MEGATRON_CHECK(size <= left_.size(), "a message lacks ", size - left_.size(), " bytes");
    std::memcpy(value, left_.data(), size);
    left_.remove_prefix(size);
  }

  std::string written_;
  std::string_view left_;
  bool reads_ = false;
};

/// Returns a value as bytes for from_bytes() in another rank of the same program: their layout is
/// that of this build. Throws the errors in the value that are no UserError.
template <class T>
std::string to_bytes(T value) {
  Archive archive;
  archive(value);
  return archive.take();
}

/// Returns the value that to_bytes() was given. InternalError when there are fewer bytes than the
/// value needs, or more.
template <class T>
T from_bytes(std::string_view bytes) {
  T value;
  Archive archive(bytes);
  archive(value);
  MEGATRON_CHECK(archive.is_at_end(), "a message is longer than what it holds");
  return value;
}

}  // namespace megatron
