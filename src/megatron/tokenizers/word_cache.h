// Remembers the ids of short words, so that frequent words are encoded once per thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "megatron/base/huge_pages.h"
#include "megatron/tokenizers/hash_bytes.h"
#include "megatron/tokenizers/regex.h"

namespace megatron {

/// A direct-mapped cache for one thread. It belongs to one tokenizer at a time.
class WordCache {
 public:
  static constexpr std::size_t kMostBytes = 15, kMostIds = 3;
  static constexpr std::size_t kMostLongBytes = 75;  ///< longer words are not remembered

  /// Returns this thread's cache for the tokenizer `owner`, which new_owner() numbered
  /// (tokenizers/thread_caches.h).
  static WordCache& of_thread(std::uint64_t owner);
  static std::uint64_t new_owner();
  void clear();

  /// Appends the ids of the word at `span` of `text`: from the cache, or by calling encode(word),
  /// which must append them to `ids`.
  template <class Encode>
  void encode(std::string_view text, const Span& span, std::vector<std::int32_t>& ids,
              Encode encode) {
    const std::string_view word = text.substr(span.begin, span.end - span.begin);
    if (word.size() > kMostBytes) return encode_long(word, 0, ids, encode);
    if (word.empty()) return encode(word);
    encode_short(key_of(text, span.begin, span.end), word, ids, encode);
  }

  /// Begins to load what encode() reads for the word at `span` of `text`, so that it need not wait.
  void prefetch(std::string_view text, const Span& span) const {
    const std::size_t size = span.end - span.begin;
    if (size <= kMostBytes) {
      __builtin_prefetch(&entries_[slot(key_of(text, span.begin, span.end))]);
    } else if (size <= kMostLongBytes) {
      const char* entry = reinterpret_cast<const char*>(
          &long_entries_[long_slot(text.substr(span.begin, size), 0)]);
      __builtin_prefetch(entry);
      __builtin_prefetch(entry + 64);
    }
  }

  /// Does the same as encode() for a part of a word. Its ids are kept apart from those of an
  /// equal word.
  template <class Encode>
  void encode_part(std::string_view text, const Span& span, std::vector<std::int32_t>& ids,
                   Encode encode) {
    const std::string_view part = text.substr(span.begin, span.end - span.begin);
    if (part.size() > kMostBytes) return encode_long(part, kLongPart, ids, encode);
    if (part.empty()) return encode(part);
    Key key = key_of(text, span.begin, span.end);
    key.high |= kPartBit;
    encode_short(key, part, ids, encode);
  }

 private:
  struct Key;

  template <class Encode>
  void encode_short(const Key& key, std::string_view word, std::vector<std::int32_t>& ids,
                    Encode encode) {
    if (append(key, ids)) return;
    const auto kind = static_cast<std::uint8_t>((key.high & kPartBit) != 0 ? kLongPart : 0);
    LongEntry& entry = long_entry(word, kind);
    if (entry.append(word, kind, ids)) return;
    const std::size_t first = ids.size();
    encode(word);
    const auto added = std::span<const std::int32_t>(ids).subspan(first);
    if (added.size() <= kMostIds) {
      store(key, added);
    } else {
      entry.store(word, kind, added);
    }
  }

  /// Does the same for a word of more bytes, such as the indentation of code before a name. Short
  /// words of many ids are among these, too.
  /// `kind` is 0 or kLongPart.
  template <class Encode>
  void encode_long(std::string_view word, std::uint8_t kind, std::vector<std::int32_t>& ids,
                   Encode encode) {
    if (word.size() > kMostLongBytes) return encode(word);
    LongEntry& entry = long_entry(word, kind);
    if (entry.append(word, kind, ids)) return;
    const std::size_t first = ids.size();
    encode(word);
    entry.store(word, kind, std::span<const std::int32_t>(ids).subspan(first));
  }

  /// A short word as two integers, with its length.
  struct Key {
    std::uint64_t low = 0, high = 0;
    bool operator==(const Key&) const = default;
  };
  static constexpr std::uint64_t kPartBit = std::uint64_t{1} << 63;  ///< lengths leave it free

  /// Returns the key of text[begin, end), which has at most kMostBytes bytes.
  static Key key_of(std::string_view text, std::size_t begin, std::size_t end) {
    const std::size_t size = end - begin;
    Key key;
    if (begin + 16 <= text.size()) {
      std::memcpy(&key, text.data() + begin, 16);
      key.low &= size >= 8 ? ~0ull : (1ull << 8 * size) - 1;
      key.high &= size <= 8 ? 0 : (1ull << 8 * (size - 8)) - 1;
    } else {
      std::memcpy(&key, text.data() + begin, size);
    }
    key.high |= static_cast<std::uint64_t>(size) << 56;
    return key;
  }

  /// Appends the ids of the word and returns true, or returns false when it is not in the cache.
  bool append(const Key& key, std::vector<std::int32_t>& ids) const {
    const Entry& entry = entries_[slot(key)];
    if (!(entry.key == key)) return false;
    for (std::uint32_t i = 0; i < entry.count; ++i) ids.push_back(entry.ids[i]);
    return true;
  }

  /// Stores the ids of a word, if they are few.
  void store(const Key& key, std::span<const std::int32_t> ids) {
    if (ids.size() > kMostIds) return;
    Entry& entry = entries_[slot(key)];
    entry.key = key;
    entry.count = static_cast<std::uint32_t>(ids.size());
    std::ranges::copy(ids, entry.ids.begin());  // none may have no address
  }

  struct Entry {
    Key key;
    std::uint32_t count = 0;
    std::array<std::int32_t, kMostIds> ids{};
  };
  static constexpr std::uint8_t kLongPart = 0x80;
  struct alignas(64) LongEntry {
    std::array<char, kMostLongBytes> word{};
    std::uint8_t size = 0;  ///< and kLongPart
    std::uint32_t count = 0;
    std::array<std::int32_t, 12> ids{};

    bool append(std::string_view text, std::uint8_t kind, std::vector<std::int32_t>& out) const {
      if (size != (text.size() | kind) || !same_bytes(word.data(), text.data(), text.size()))
        return false;
      out.insert(out.end(), ids.begin(), ids.begin() + count);
      return true;
    }
    /// Stores the ids of a word, if they are few.
    void store(std::string_view text, std::uint8_t kind, std::span<const std::int32_t> added) {
      if (added.size() > ids.size()) return;
      size = static_cast<std::uint8_t>(text.size() | kind);
      count = static_cast<std::uint32_t>(added.size());
      std::memcpy(word.data(), text.data(), text.size());
      std::ranges::copy(added, ids.begin());
    }
  };
  std::size_t long_slot(std::string_view word, std::uint8_t kind) const {
    return (hash_bytes(word) ^ kind) & (long_entries_.size() - 1);
  }
  LongEntry& long_entry(std::string_view word, std::uint8_t kind) {
    return long_entries_[long_slot(word, kind)];
  }
  static constexpr int kLogEntries = 16, kLogLongEntries = 15;
  static std::size_t slot(const Key& key) {
    const std::uint64_t mixed = (key.low * 0x9E3779B97F4A7C15u) ^ (key.high * 0xC2B2AE3D27D4EB4Fu);
    return static_cast<std::size_t>((mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93u >>
                                    (64 - kLogEntries));
  }

  HugePageVector<Entry> entries_ = HugePageVector<Entry>(std::size_t{1} << kLogEntries);
  HugePageVector<LongEntry> long_entries_ =
      HugePageVector<LongEntry>(std::size_t{1} << kLogLongEntries);
};

}  // namespace megatron
