#include "megatron/tokenizers/inspection/text_statistics.h"

#include <algorithm>
#include <tuple>

#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

double ratio(std::int64_t count, std::int64_t of) {
  return of == 0 ? 0 : static_cast<double>(count) / static_cast<double>(of);
}

bool goes_first(const LongWord& a, const LongWord& b) {
  return std::tie(b.tokens, b.count, a.word) < std::tie(a.tokens, a.count, b.word);
}

}  // namespace

void TextStatistics::add(std::string_view text, const std::vector<std::int32_t>& ids,
                         std::int32_t unk) {
  bytes += static_cast<std::int64_t>(text.size());
  tokens += static_cast<std::int64_t>(ids.size());
  if (unk >= 0) unknown_tokens += std::ranges::count(ids, unk);
  std::size_t word = 0;
  const auto end_word = [&](std::size_t end) {
    if (word == end) return;
    ++words;
    distinct_words.add(text.substr(word, end - word));
  };
  for (std::size_t i = 0; i < text.size(); ++characters) {
    const std::size_t begin = i;
    if (!is_white_space(next_code_point(text, i))) continue;
    end_word(begin);
    word = i;
  }
  end_word(text.size());
}

void TextStatistics::merge(const TextStatistics& other) {
  bytes += other.bytes;
  characters += other.characters;
  words += other.words;
  tokens += other.tokens;
  unknown_tokens += other.unknown_tokens;
  distinct_words.merge(other.distinct_words);
}

double TextStatistics::bytes_per_token() const { return ratio(bytes, tokens); }
double TextStatistics::tokens_per_word() const { return ratio(tokens, words); }

WordStatistics word_statistics(const WordCounts& words, const Tokenizer& tokenizer,
                               TokenSpelling spelling, std::size_t num_longest) {
  WordStatistics result;
  std::int64_t divided = 0;
  for (const CountedWord& word : words.words()) {
    // Metaspace and BERT put the space before a word themselves, or none.
    std::string text = spelling == TokenSpelling::metaspace ? "" : " ";
    text += word.word;
    const auto tokens = static_cast<std::int64_t>(tokenizer.encode_fragment(text).size());
    if (tokens > 1) divided += word.count;
    LongWord candidate{std::string(word.word), tokens, word.count};
    auto& longest = result.longest;
    if (longest.size() == num_longest && !goes_first(candidate, longest.back())) continue;
    longest.insert(std::ranges::upper_bound(longest, candidate, goes_first), std::move(candidate));
    if (longest.size() > num_longest) longest.pop_back();
  }
  result.divided_share = ratio(divided, words.total());
  return result;
}

}  // namespace megatron
