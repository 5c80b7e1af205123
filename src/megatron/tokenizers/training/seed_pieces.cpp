#include "megatron/tokenizers/training/seed_pieces.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

/// The end of a word from one of its characters on, cut after one character more than a piece has.
struct Suffix {
  std::uint64_t first_bytes;  ///< the first eight, of which the first weighs most
  std::string_view text;
};

bool goes_first(const Suffix& a, const Suffix& b) {
  return a.first_bytes != b.first_bytes ? a.first_bytes < b.first_bytes : a.text < b.text;
}

std::uint64_t first_bytes_of(std::string_view text) {
  unsigned char bytes[8] = {};
  std::memcpy(bytes, text.data(), std::min<std::size_t>(text.size(), 8));
  std::uint64_t value = 0;
  for (const unsigned char byte : bytes) value = value << 8 | byte;
  return value;
}

std::vector<Suffix> sorted_suffixes(std::span<const CountedWord> words,
                                    std::size_t max_characters) {
  std::vector<Suffix> suffixes;
  for (const CountedWord& word : words) {
    const std::vector<std::size_t> starts = character_starts(word.word);
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
      const std::size_t end = starts[std::min(i + max_characters + 1, starts.size() - 1)];
      const std::string_view text = word.word.substr(starts[i], end - starts[i]);
      suffixes.push_back({first_bytes_of(text), text});
    }
  }
  std::ranges::sort(suffixes, goes_first);
  return suffixes;
}

/// A substring: the first bytes of suffixes that follow each other.
struct Substring {
  std::string_view text;
  std::int64_t score;
};

constexpr std::size_t kWhole = ~std::size_t{0};

/// Returns how many bytes of whole characters two suffixes share; kWhole when they are equal, which
/// includes their ends.
std::size_t shared_bytes(std::string_view a, std::string_view b) {
  if (a == b) return kWhole;
  auto shared = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  while (shared > 0 && ((shared < a.size() && is_continuation_byte(a[shared])) ||
                        (shared < b.size() && is_continuation_byte(b[shared]))))
    --shared;
  return shared;
}

/// Returns the substrings that different characters follow: the inner nodes of the suffix tree.
std::vector<Substring> branching_substrings(const std::vector<Suffix>& suffixes,
                                            std::size_t max_characters) {
  struct Open {
    std::size_t bytes, first;
  };
  std::vector<Open> open;
  std::vector<Substring> found;
  const auto close = [&](const Open& node, std::size_t end) {
    if (node.bytes == kWhole || node.bytes == 0) return;
    const std::string_view text = suffixes[node.first].text.substr(0, node.bytes);
    const std::size_t characters = count_characters(text);
    if (characters < 2 || characters > max_characters || text.find('\0') != std::string_view::npos)
      return;
    found.push_back({text, static_cast<std::int64_t>((end - node.first) * characters)});
  };
  for (std::size_t i = 1; i <= suffixes.size(); ++i) {
    const std::size_t shared =
        i == suffixes.size() ? 0 : shared_bytes(suffixes[i - 1].text, suffixes[i].text);
    std::size_t first = i - 1;
    while (!open.empty() && open.back().bytes > shared) {
      first = open.back().first;
      close(open.back(), i);
      open.pop_back();
    }
    if (open.empty() || open.back().bytes < shared) open.push_back({shared, first});
  }
  return found;
}

void make_logarithms_of_shares(std::vector<ScoredPiece>& pieces) {
  double sum = 0;
  for (const auto& [piece, score] : pieces) sum += score;
  const double log_sum = std::log(sum);
  for (auto& [piece, score] : pieces) score = std::log(score) - log_sum;
}

}  // namespace

std::vector<ScoredPiece> seed_pieces(std::span<const CountedWord> words,
                                     const SeedOptions& options) {
  std::map<char32_t, std::int64_t> counts;
  for (const CountedWord& word : words)
    for (std::size_t i = 0; i < word.word.size();)
      if (const char32_t c = next_code_point(word.word, i); c != 0) counts[c] += word.count;
  std::vector<std::pair<std::int64_t, char32_t>> characters;
  for (const auto& [c, count] : counts) characters.emplace_back(count, c);
  std::ranges::sort(characters, std::greater());

  const auto max_characters = static_cast<std::size_t>(options.max_piece_length);
  std::vector<Substring> substrings =
      branching_substrings(sorted_suffixes(words, max_characters), max_characters);
  std::ranges::sort(substrings, [](const Substring& a, const Substring& b) {
    return a.score != b.score ? a.score > b.score : a.text > b.text;
  });
  std::vector<ScoredPiece> pieces;
  for (const auto& [count, c] : characters) {
    std::string text;
    append_utf8(text, c);
    pieces.emplace_back(std::move(text), static_cast<double>(count));
  }
  for (const Substring& substring : substrings) {
    pieces.emplace_back(substring.text, static_cast<double>(substring.score));
    if (static_cast<std::int64_t>(pieces.size()) >= options.seed_size) break;
  }
  make_logarithms_of_shares(pieces);
  return pieces;
}

}  // namespace megatron
