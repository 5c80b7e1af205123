// Requests and their news as bytes, for other ranks of the same program. A new field of a struct
// does not compile until its list below has it.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/inference/request_queue.h"

namespace megatron {

/// News of a request: an update, or why it cannot be served.
struct News {
  Update update = {};
  std::optional<UserError::Parts> refusal = {};
};

inline auto fields(LogitBias& of) {
  auto& [id, bias] = of;
  return std::tie(id, bias);
}
inline auto fields(SamplingParams& of) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w] = of;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w);
}
inline auto fields(SamplingSite& of) {
  auto& [prompt, position, sample] = of;
  return std::tie(prompt, position, sample);
}
inline auto fields(TextRequest& of) {
  auto& [prompt, params, site, priority, deadline_s] = of;
  return std::tie(prompt, params, site, priority, deadline_s);
}
inline auto fields(Command& of) {
  auto& [kind, request, text] = of;
  return std::tie(kind, request, text);
}
inline auto fields(TokenLogprob& of) {
  auto& [id, logprob] = of;
  return std::tie(id, logprob);
}
inline auto fields(SampledToken& of) {
  auto& [id, logprob, best] = of;
  return std::tie(id, logprob, best);
}
inline auto fields(Generation& of) {
  auto& [ids, finish_reason, num_cut_bytes, tokens, score] = of;
  return std::tie(ids, finish_reason, num_cut_bytes, tokens, score);
}
inline auto fields(Update& of) {
  auto& [request, token, finished] = of;
  return std::tie(request, token, finished);
}
inline auto fields(UserError::Parts& of) {
  auto& [what, got, fix] = of;
  return std::tie(what, got, fix);
}
inline auto fields(News& of) {
  auto& [update, refusal] = of;
  return std::tie(update, refusal);
}

/// Writes values to bytes, or reads them in the same order.
class Archive {
 public:
  /// Writes.
  Archive() = default;
  /// Reads.
  explicit Archive(std::string_view bytes) : left_(bytes), reads_(true) {}

  template <class T>
  void operator()(T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      copy(&value, sizeof value);
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
      std::apply([&](auto&... field) { ((*this)(field), ...); }, fields(value));
    }
  }
  std::string take() { return std::move(written_); }

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
