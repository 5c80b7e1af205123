// The wire protocol of c10d's TCPStore, so that a store hosted by torchrun's agent works too.
// Numbers have the byte order of the host. A request is one byte and its arguments. Texts and lists
// are preceded by their 64-bit length.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace megatron {

enum class StoreRequest : std::uint8_t {
  validate,     ///< kStoreMagic; no answer
  set,          ///< key, value; no answer
  compare_set,  ///< key, expected, new → value
  get,          ///< key → value
  add,          ///< key, amount → sum
  check,        ///< list of keys → 0 when all are set, else 1 (a byte)
  wait,         ///< not used
  num_keys,     ///< → number
  delete_key,   ///< key → 1 or 0
  append,       ///< not used
  multi_get,    ///< not used
  multi_set,    ///< not used
  cancel_wait,  ///< not used
  ping,         ///< 32 bits → the same
};

/// A store that asks for a token accepts only one request after the first ones: a compare_set of
/// this key with the token. It answers kTokenAccepted, or anything else and ends the connection.
inline constexpr const char *kTokenKey = "megatron/token", *kTokenAccepted = "accepted";

/// A compare_set of this key registers the client's last will: its value is a key, a line feed and
/// a text, which the store appends to that key when the connection ends. An empty value withdraws
/// it. Another store takes it for an ordinary key.
inline constexpr const char* kLastWillKey = "megatron/last-will";

/// A connection counts as lost when the other host has not acknowledged for this long: it is down,
/// or the network to it is cut. The kernel
/// acknowledges for a stopped process too.
inline constexpr int kSilentHostSeconds = 30;
/// Makes the kernel notice within kSilentHostSeconds that the other host of a TCP connection is
/// gone.
void notice_silent_host(int descriptor);

inline constexpr std::uint32_t kStoreMagic = 0x3C85F7CE;
inline constexpr std::uint64_t kMaxStoreTextBytes = std::uint64_t{256} << 20;

template <class Number>
void append_number(std::string& bytes, Number number) {
  char text[sizeof(Number)];
  std::memcpy(text, &number, sizeof(Number));
  bytes.append(text, sizeof(Number));
}

inline void append_text(std::string& bytes, std::string_view text) {
  append_number<std::uint64_t>(bytes, text.size());
  bytes += text;
}

inline std::string begin_request(StoreRequest request) {
  return std::string(1, static_cast<char>(request));
}

}  // namespace megatron
