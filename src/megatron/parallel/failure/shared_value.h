// A small value or text in shared memory that one process writes and others read at any time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace megatron {

/// Zero-filled memory is a zero-filled value. Its words are written while the version is odd, so
/// that readers detect a torn read. One thread at a time may write.
template <class Value>
class SharedValue {
  static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) % sizeof(std::uint64_t) == 0);

 public:
  void write(const Value& value) {
    Words words;
    std::memcpy(words.data(), &value, sizeof value);
    version_.fetch_add(1);
    for (std::size_t i = 0; i < words.size(); ++i)
      words_[i].store(words[i], std::memory_order_release);
    version_.fetch_add(1);
  }

  /// Returns nullopt if the value's writer died while writing.
  std::optional<Value> read() const {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      const std::uint32_t before = version_.load();
      Words words;
      for (std::size_t i = 0; i < words.size(); ++i)
        words[i] = words_[i].load(std::memory_order_acquire);
      if (before % 2 != 0 || version_.load() != before) continue;
      Value value;
      std::memcpy(&value, words.data(), sizeof value);
      return value;
    }
    return std::nullopt;
  }

 private:
  using Words = std::array<std::uint64_t, sizeof(Value) / sizeof(std::uint64_t)>;
  std::atomic<std::uint32_t> version_;
  std::array<std::atomic<std::uint64_t>, sizeof(Value) / sizeof(std::uint64_t)> words_;
};

/// Holds up to `capacity` − 1 bytes; longer texts are cut.
template <std::size_t capacity>
class SharedText {
 public:
  void write(std::string_view text) {
    std::array<char, capacity> bytes{};
    std::ranges::copy(text.substr(0, capacity - 1), bytes.begin());
    bytes_.write(bytes);
  }
  /// Returns "" if its writer died while writing.
  std::string read() const {
    const auto bytes = bytes_.read();
    return bytes ? std::string(bytes->data()) : std::string();
  }

 private:
  SharedValue<std::array<char, capacity>> bytes_;
};

}  // namespace megatron
