#include "megatron/tokenizers/training/word_counts.h"

#include <cstring>

#include "megatron/base/error.h"
#include "megatron/tokenizers/hash_bytes.h"

namespace megatron {

void WordCounts::add(std::string_view word, std::int64_t count) {
  total_ += count;
  const std::uint32_t hash = hash_bytes(word);
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    Entry& entry = entries_[slots_[slot] - 1];
    if (entry.hash == hash && entry.size == word.size() &&
        std::memcmp(arena_.data() + entry.begin, word.data(), word.size()) == 0) {
      entry.count += count;
      return;
    }
  }
  MEGATRON_CHECK(word.size() < ~0u && entries_.size() < ~0u - 1, "too many words");
  entries_.push_back({arena_.size(), static_cast<std::uint32_t>(word.size()), hash, count});
  arena_ += word;
  slots_[slot] = static_cast<std::uint32_t>(entries_.size());
  if (entries_.size() * 2 > slots_.size()) grow();
}

void WordCounts::grow() {
  slots_.assign(slots_.size() * 4, 0);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    std::size_t slot = entries_[i].hash & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<std::uint32_t>(i + 1);
  }
}

void WordCounts::merge(const WordCounts& other) {
  for (const CountedWord& word : other.words()) add(word.word, word.count);
}

std::vector<CountedWord> WordCounts::words() const {
  std::vector<CountedWord> words;
  words.reserve(entries_.size());
  for (const Entry& entry : entries_)
    words.push_back({std::string_view(arena_).substr(entry.begin, entry.size), entry.count});
  return words;
}

}  // namespace megatron
