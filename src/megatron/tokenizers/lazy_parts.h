// Builds the filter of independent parts when a text first needs it: it takes milliseconds, and
// texts in English need none.
#pragma once

#include <memory>
#include <mutex>

#include "megatron/tokenizers/independent_parts.h"
#include "megatron/tokenizers/word_cache.h"

namespace megatron {

/// Thread-safe.
class LazyParts {
 public:
  explicit LazyParts(IndependentParts::Boundaries boundaries) : boundaries_(boundaries) {}

  /// Encodes the parts of `word` by encode_part(part), which appends to `ids`, and remembers their
  /// ids in `cache`. Returns false and does nothing for a word of one part. each_token(add) calls
  /// add(token) for every token of the vocabulary.
  template <class EachToken, class Encode>
  bool encode(std::string_view word, const EachToken& each_token, WordCache& cache,
              std::vector<std::int32_t>& ids, const Encode& encode_part) const {
    if (boundaries_ == IndependentParts::Boundaries::all ? word.size() <= WordCache::kMostBytes
                                                         : !has_other_than_ascii(word))
      return false;
    const IndependentParts& parts = filter(each_token);
    std::size_t end = parts.part_end(word, 0);
    if (end == word.size()) return false;
    for (std::size_t begin = 0; begin < word.size();
         begin = end, end = begin < word.size() ? parts.part_end(word, begin) : begin)
      cache.encode_part(word, {begin, end}, ids, encode_part);
    return true;
  }

 private:
  static bool has_other_than_ascii(std::string_view word) {
    for (const char c : word)
      if (static_cast<unsigned char>(c) >= 0x80) return true;
    return false;
  }
  template <class EachToken>
  const IndependentParts& filter(const EachToken& each_token) const {
    std::call_once(*once_, [&] {
      filter_ = std::make_unique<IndependentParts>(boundaries_);
      each_token([this](std::string_view token) { filter_->add(token); });
    });
    return *filter_;
  }

  IndependentParts::Boundaries boundaries_;
  std::unique_ptr<std::once_flag> once_ = std::make_unique<std::once_flag>();
  mutable std::unique_ptr<IndependentParts> filter_;
};

}  // namespace megatron
