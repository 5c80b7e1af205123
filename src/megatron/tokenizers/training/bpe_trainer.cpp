#include "megatron/tokenizers/training/bpe_trainer.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/tokenizers/training/bpe_alphabet.h"

namespace megatron {
namespace {

/// A pair of tokens. The trainer uses the last three members to gather the words in which the pair
/// has just arisen.
struct PairCount {
  static constexpr std::uint64_t kDropped = ~std::uint64_t{0};
  std::uint64_t key;  ///< left id · 2³² + right id
  std::int64_t count = 0;
  std::uint64_t last_word = 0;
  std::uint64_t next_place = 0;
  std::uint32_t num_words = 0;
};

/// A hash table of the pairs of adjacent tokens in a text. Their numbers never change.
class PairTable {
 public:
  /// Returns the number of a pair, which is added with count 0 if it is new.
  std::uint32_t find_or_add(std::uint32_t left, std::uint32_t right) {
    const std::uint64_t key = std::uint64_t{left} << 32 | right;
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = home(key);
    for (; slots_[slot].number != kFree; slot = (slot + 1) & mask)
      if (slots_[slot].key == key) return slots_[slot].number;
    const auto number = static_cast<std::uint32_t>(pairs_.size());
    slots_[slot] = {key, number};
    pairs_.push_back({.key = key});
    if (pairs_.size() * 2 > slots_.size()) grow();
    return number;
  }
  PairCount& operator[](std::uint32_t number) { return pairs_[number]; }
  std::size_t size() const { return pairs_.size(); }

 private:
  static constexpr std::uint32_t kFree = ~0u;
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t number = kFree;
  };
  std::size_t home(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
  }
  void grow() {
    --shift_;
    slots_.assign(slots_.size() * 2, {});
    for (std::uint32_t number = 0; number < pairs_.size(); ++number) {
      std::size_t slot = home(pairs_[number].key);
      while (slots_[slot].number != kFree) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = {pairs_[number].key, number};
    }
  }

  int shift_ = 64 - 12;
  std::vector<Slot> slots_ = std::vector<Slot>(std::size_t{1} << 12);
  std::vector<PairCount> pairs_;
};

/// A candidate in the queue: a pair, its count when it was queued, and the words to merge it in.
struct Candidate {
  std::int64_t count;
  std::uint64_t key;  ///< left id · 2³² + right id
  std::uint32_t pair;
  std::uint32_t num_words;
  std::uint64_t first_word;  ///< in places_
};

/// Orders a heap whose top has the highest count, and of these the smallest pair.
bool comes_later(const Candidate& a, const Candidate& b) {
  return a.count != b.count ? a.count < b.count : a.key > b.key;
}

/// The state of a training. It takes the package's steps one by one: a pair is queued with the
/// words in which it has just arisen, its count is looked up when its turn comes, and a merge that
/// gives a known token (as `a`+`bc` after `ab`+`c`) takes that token's id. Then a pair can be
/// queued, and merged, several times.
class BpeTraining {
 public:
  BpeTraining(std::span<const CountedWord> words, const BpeTrainerOptions& options)
      : words_(words), options_(options), text_(make_symbols(words, options, vocabulary_)) {
    const auto size = static_cast<std::int64_t>(vocabulary_.size());
    if (size > options.vocab_size)
      throw UserError(
          {"--vocab-size " + std::to_string(options.vocab_size) + " is too small",
           "the special tokens and the alphabet are " + std::to_string(size) + " tokens",
           "give at least " + std::to_string(size) + ", or --limit-alphabet"});
    lengths_.assign(vocabulary_.size(), 1);
    ends_.assign(text_.starts.begin() + 1, text_.starts.end());
  }

  TrainedBpe run() {
    count_pairs();
    while (static_cast<std::int64_t>(vocabulary_.size()) < options_.vocab_size && !queue_.empty()) {
      Candidate top = pop();
      if (const std::int64_t count = pairs_[top.pair].count; count != top.count) {
        top.count = count;
        push(top);
        continue;
      }
      if (top.count < 1 || top.count < options_.min_frequency) break;
      merge(top);
      if (options_.progress && vocabulary_.size() % 64 == 0)
        options_.progress(static_cast<std::int64_t>(vocabulary_.size()));
    }
    return {.tokens = vocabulary_.take(), .merges = last_of_each()};
  }

 private:
  void push(const Candidate& candidate) {
    queue_.push_back(candidate);
    std::ranges::push_heap(queue_, comes_later);
  }
  Candidate pop() {
    std::ranges::pop_heap(queue_, comes_later);
    const Candidate top = queue_.back();
    queue_.pop_back();
    return top;
  }

  void count_pairs() {
    for (std::size_t word = 0; word < words_.size(); ++word)
      for (std::uint64_t i = text_.starts[word]; i + 1 < ends_[word]; ++i)
        add_place(text_.symbols[i], text_.symbols[i + 1], word);
    queue_new_pairs();
  }

  /// Counts a pair that a word contains now.
  void add_place(std::uint32_t left, std::uint32_t right, std::size_t word) {
    const std::uint32_t pair = pairs_.find_or_add(left, right);
    PairCount& counted = pairs_[pair];
    counted.count += words_[word].count;
    if (counted.num_words == 0) {
      new_pairs_.push_back(pair);
    } else if (counted.last_word == word) {
      return;
    }
    counted.last_word = word;
    ++counted.num_words;
    new_places_.push_back({pair, static_cast<std::uint32_t>(word)});
  }
  void remove(std::uint32_t left, std::uint32_t right, std::size_t word) {
    pairs_[pairs_.find_or_add(left, right)].count -= words_[word].count;
  }

  /// Queues the pairs of new_places_, each with its words.
  void queue_new_pairs() {
    std::uint64_t first = places_.size();
    for (const std::uint32_t pair : new_pairs_) {
      PairCount& counted = pairs_[pair];
      const std::uint32_t num_words = counted.num_words;
      counted.num_words = 0;
      counted.next_place = first;
      if (counted.count <= 0) {
        counted.next_place = PairCount::kDropped;
        continue;
      }
      queue_.push_back({counted.count, counted.key, pair, num_words, first});
      if (is_started_) std::ranges::push_heap(queue_, comes_later);
      first += num_words;
    }
    if (!is_started_) std::ranges::make_heap(queue_, comes_later);
    is_started_ = true;
    places_.resize(first);
    for (const auto& [pair, word] : new_places_)
      if (std::uint64_t& next = pairs_[pair].next_place; next != PairCount::kDropped)
        places_[next++] = word;
    new_pairs_.clear();
    new_places_.clear();
  }

  std::uint32_t token_of(std::uint32_t left, std::uint32_t right) {
    std::string_view rest = vocabulary_.token(right);
    const std::string& prefix = options_.continuing_subword_prefix;
    if (!prefix.empty() && rest.starts_with(prefix)) rest.remove_prefix(prefix.size());
    const std::uint32_t id = vocabulary_.add(vocabulary_.token(left) + std::string(rest));
    if (id == lengths_.size()) lengths_.push_back(0);
    lengths_[id] = lengths_[left] + lengths_[right];  // also of a special token with this text
    return id;
  }

  void merge(const Candidate& top) {
    const auto left = static_cast<std::uint32_t>(top.key >> 32),
               right = static_cast<std::uint32_t>(top.key);
    const std::uint32_t merged = token_of(left, right);
    merges_.emplace_back(left, right);
    for (std::uint64_t i = top.first_word; i < top.first_word + top.num_words; ++i)
      merge_in_word(places_[i], left, right, merged);
    queue_new_pairs();
  }

  /// Replaces the pair in a word, from left to right, and counts what that changes beside it.
  void merge_in_word(std::size_t word, std::uint32_t left, std::uint32_t right,
                     std::uint32_t merged) {
    std::uint32_t* const symbols = text_.symbols.data() + text_.starts[word];
    const std::size_t size = ends_[word] - text_.starts[word];
    const std::int64_t length = lengths_[left] + lengths_[right];
    const auto may_pair = [&](std::uint32_t neighbor) {
      return !options_.max_token_length || lengths_[neighbor] + length < *options_.max_token_length;
    };
    std::size_t out = 0;
    for (std::size_t i = 0; i < size;) {
      if (symbols[i] != left || i + 1 == size || symbols[i + 1] != right) {
        symbols[out++] = symbols[i++];
        continue;
      }
      if (out > 0) {
        remove(symbols[out - 1], left, word);
        if (may_pair(symbols[out - 1])) add_place(symbols[out - 1], merged, word);
      }
      if (i + 2 < size) {
        remove(right, symbols[i + 2], word);
        if (may_pair(symbols[i + 2])) add_place(merged, symbols[i + 2], word);
      }
      symbols[out++] = merged;
      i += 2;
    }
    ends_[word] = text_.starts[word] + out;
  }

  /// Returns the merges in order; of a pair that was merged several times, the last counts.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> last_of_each() const {
    PairTable seen;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> result;
    for (auto merge = merges_.rbegin(); merge != merges_.rend(); ++merge) {
      const std::size_t before = seen.size();
      seen.find_or_add(merge->first, merge->second);
      if (seen.size() != before) result.push_back(*merge);
    }
    std::ranges::reverse(result);
    return result;
  }

  std::span<const CountedWord> words_;
  const BpeTrainerOptions& options_;
  GrowingVocabulary vocabulary_;
  SymbolWords text_;
  std::vector<std::uint64_t> ends_;    ///< of the words in text_.symbols, which shrink
  std::vector<std::int64_t> lengths_;  ///< characters of each token
  PairTable pairs_;
  std::vector<Candidate> queue_;       ///< a heap
  std::vector<std::uint32_t> places_;  ///< the words of all candidates
  struct Place {
    std::uint32_t pair, word;
  };
  std::vector<Place> new_places_;
  std::vector<std::uint32_t> new_pairs_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> merges_;
  bool is_started_ = false;
};

}  // namespace

TrainedBpe train_bpe(std::span<const CountedWord> words, const BpeTrainerOptions& options) {
  return BpeTraining(words, options).run();
}

}  // namespace megatron
