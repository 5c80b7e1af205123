// A short text in shared memory that one process writes and others read at any time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace megatron {

/// Holds up to `capacity` − 1 bytes; longer texts are cut. Zero-filled memory is an empty text. Its
/// words are written while the version is odd, so that readers detect a torn read. One thread at a
/// time may write.
template <std::size_t capacity>
class SharedText {
  static_assert(capacity % sizeof(std::uint64_t) == 0);

 public:
  void write(std::string_view text) {
    Words words{};
    std::memcpy(words.data(), text.data(), std::min(text.size(), capacity - 1));
    version_.fetch_add(1);
    for (std::size_t i = 0; i < words.size(); ++i)
      words_[i].store(words[i], std::memory_order_release);
    version_.fetch_add(1);
  }

  /// Returns the text; "" when its writer died while writing.
  std::string read() const {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      const std::uint32_t before = version_.load();
      Words words;
      for (std::size_t i = 0; i < words.size(); ++i)
        words[i] = words_[i].load(std::memory_order_acquire);
      if (before % 2 == 0 && version_.load() == before)
        return reinterpret_cast<const char*>(words.data());
    }
    return {};
  }

 private:
  using Words = std::array<std::uint64_t, capacity / sizeof(std::uint64_t)>;
  std::atomic<std::uint32_t> version_;
  std::array<std::atomic<std::uint64_t>, capacity / sizeof(std::uint64_t)> words_;
};

}  // namespace megatron
