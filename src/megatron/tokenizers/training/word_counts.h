// Counts the distinct words of a text, which is all that the trainers of tokenizers need of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// A word of a text and how often it occurs.
struct CountedWord {
  std::string_view word;
  std::int64_t count = 0;
};

/// A hash table of words whose texts lie in one arena. Not thread-safe: every thread has its own,
/// and merge() adds them up.
class WordCounts {
 public:
  /// Adds `count` occurrences of `word`.
  void add(std::string_view word, std::int64_t count = 1);
  /// Adds the words of `other`.
  void merge(const WordCounts& other);
  /// Returns the number of distinct words.
  std::size_t size() const { return entries_.size(); }
  /// Returns the number of words.
  std::int64_t total() const { return total_; }
  /// Returns the words in the order of their first add(). They are valid until the next one.
  std::vector<CountedWord> words() const;

 private:
  struct Entry {
    std::uint64_t begin;
    std::uint32_t size, hash;
    std::int64_t count;
  };
  void grow();

  std::string arena_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(1024);  ///< entry + 1; 0: free
  std::int64_t total_ = 0;
};

}  // namespace megatron
