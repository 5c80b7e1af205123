// The wire protocol of c10d's TCPStore, so that a store hosted by torchrun's agent works too.
// Numbers have the byte order of the host. A request is one byte and its arguments. Texts and lists
// are preceded by their 64-bit length.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

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
  append,       ///< key, text → number of bytes after the call
  multi_get,    ///< not used
  multi_set,    ///< not used
  cancel_wait,  ///< not used
  ping,         ///< 32 bits → the same
  // Of this program only:
  frames = 200,  ///< from now on, answers to this client are frames; no answer
  watch,         ///< key → a frame with its value, now and at every change; and an empty answer,
                 ///< which may come before the first value
};

/// What the store sends to a client that asked for frames: one byte, and texts.
enum class StoreFrame : std::uint8_t {
  answer,   ///< the answer to its next request that has one
  changed,  ///< key, value of a watched key
  missing,  ///< key that is watched and not set
};

/// Thrown when only a part of a request has arrived.
struct IncompleteRequest {};
/// Thrown when the other side does not follow the protocol.
struct ProtocolError {};

/// A store that asks for a token accepts only one request after the first ones: a compare_set of
/// this key with the token. It answers kTokenAccepted, or anything else and ends the connection.
inline constexpr const char *kTokenKey = "megatron/token", *kTokenAccepted = "accepted";

/// A compare_set of this key registers the client's disconnect text: its value is a key, a line
/// feed and a text, which the store appends to that key when the connection ends. An empty value
/// removes it. To another store it is an ordinary key.
inline constexpr const char* kOnDisconnectKey = "megatron/last-will";

/// A connection counts as lost when the other host has not acknowledged for this long: it is down,
/// or the network to it is cut. The kernel acknowledges for a stopped process too.
inline constexpr int kSilentHostSeconds = 30;
/// Makes the kernel notice within kSilentHostSeconds that the other host of a TCP connection is
/// gone.
void detect_silent_host(int descriptor);

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

inline void append_frame(std::string& bytes, StoreFrame frame,
                         std::initializer_list<std::string_view> texts) {
  append_number(bytes, static_cast<std::uint8_t>(frame));
  for (const std::string_view text : texts) append_text(bytes, text);
}

/// Reads the parts of a request or of a frame.
class RequestReader {
 public:
  explicit RequestReader(std::string_view bytes) : bytes_(bytes) {}

  template <class Number>
  Number number() {
    Number value;
    // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): take() returns that many bytes.
    std::memcpy(&value, take(sizeof(Number)).data(), sizeof(Number));
    return value;
  }
  std::string text() {
    const auto size = number<std::uint64_t>();
    if (size > kMaxStoreTextBytes) throw ProtocolError{};
    return std::string(take(size));
  }
  /// Returns what was read so far, from the beginning of the message.
  std::string_view consumed() const { return bytes_.substr(0, at_); }

 private:
  std::string_view take(std::size_t count) {
    if (bytes_.size() - at_ < count) throw IncompleteRequest{};
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

/// Reads the arguments of a compare_set if its key is `key`, and returns its expected and its new
/// value. Otherwise the reader stays where it is.
std::optional<std::pair<std::string, std::string>> read_compare_set_of(std::string_view key,
                                                                       RequestReader& reader);

/// Calls `take` with a reader at the beginning of each whole message in `bytes`, and removes what
/// it has taken. A message whose end has not arrived stays.
template <class Take>
void take_messages(std::string& bytes, const Take& take) {
  std::size_t done = 0;
  try {
    while (done < bytes.size()) {
      RequestReader reader(std::string_view(bytes).substr(done));
      take(reader);
      done += reader.consumed().size();
    }
  } catch (const IncompleteRequest&) {
    // Expected: the rest will arrive later.
  }
  bytes.erase(0, done);
}

/// Returns a request, or its beginning, with texts as arguments.
inline std::string request_of(StoreRequest request,
                              std::initializer_list<std::string_view> texts = {}) {
  std::string bytes(1, static_cast<char>(request));
  for (const std::string_view text : texts) append_text(bytes, text);
  return bytes;
}

}  // namespace megatron
