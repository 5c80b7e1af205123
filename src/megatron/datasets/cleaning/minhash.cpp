#include "megatron/datasets/cleaning/minhash.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/datasets/random_state.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

/// Permutations that one loop of known length computes, so that it is vectorized.
constexpr std::size_t kBlock = 16;
constexpr std::uint32_t kLargest = std::numeric_limits<std::uint32_t>::max();

/// The finalizer of MurmurHash3, with which datasketch mixes its input.
std::uint32_t mix(std::uint32_t h) {
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  return h ^ (h >> 16);
}

/// Whether the character is of a script that is written without spaces.
bool is_word_alone(char32_t c) {
  const auto within = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  return within(0x0e00, 0x0eff) || within(0x1000, 0x109f) || within(0x1780, 0x17ff) ||
         within(0x2e80, 0x30ff) || within(0x31f0, 0x31ff) || within(0x3400, 0x9fff) ||
         within(0xf900, 0xfaff) || within(0x20000, 0x3ffff);
}

/// Returns the hashes of the words of a text.
std::vector<std::uint64_t> word_hashes(std::string_view text) {
  const std::string lower = lowercase_unicode(text);
  std::vector<std::uint64_t> hashes;
  std::size_t begin = 0;
  const auto add = [&](std::size_t end) {
    if (end > begin) hashes.push_back(checksum(std::string_view(lower).substr(begin, end - begin)));
    begin = end;
  };
  for (std::size_t at = 0; at < lower.size();) {
    const std::size_t start = at;
    const char32_t c = next_code_point(lower, at);
    const bool is_part = is_letter(c) || is_numeric(c) || is_combining_mark(c);
    if (is_part && !is_word_alone(c)) continue;
    add(start);
    if (is_part) add(at);
    begin = at;
  }
  add(lower.size());
  return hashes;
}

}  // namespace

MinHasher::MinHasher(const MinHashOptions& options) : options_(options) {
  MEGATRON_CHECK(options.ngram > 0 && options.bands > 0 && options.rows > 0, "shingles of ",
                 options.ngram, " in ", options.bands, " bands of ", options.rows);
  const auto count = static_cast<std::size_t>(options.bands * options.rows);
  RandomState random(static_cast<std::uint32_t>(options.seed));
  for (std::size_t i = 0; i < count; ++i)  // odd, so that the map is one to one
    multipliers_.push_back(static_cast<std::uint32_t>(random.interval(kLargest / 2)) * 2 + 1);
  for (std::size_t i = 0; i < count; ++i)
    addends_.push_back(static_cast<std::uint32_t>(random.interval(kLargest)));
  multipliers_.resize((count + kBlock - 1) / kBlock * kBlock);
  addends_.resize(multipliers_.size());
}

std::vector<std::uint32_t> MinHasher::signature_of(std::span<const std::uint32_t> hashes) const {
  std::vector<std::uint32_t> mixed, minima;
  for (const std::uint32_t hash : hashes) mixed.push_back(mix(hash));
  for (std::size_t first = 0; first < multipliers_.size(); first += kBlock) {
    std::array<std::uint32_t, kBlock> a, b, least;
    std::copy_n(&multipliers_[first], kBlock, a.begin());
    std::copy_n(&addends_[first], kBlock, b.begin());
    least.fill(kLargest);
    for (const std::uint32_t hash : mixed)
      for (std::size_t i = 0; i < kBlock; ++i) least[i] = std::min(least[i], a[i] * hash + b[i]);
    minima.insert(minima.end(), least.begin(), least.end());
  }
  minima.resize(static_cast<std::size_t>(options_.bands * options_.rows));
  return minima;
}

std::vector<std::uint32_t> MinHasher::signature(std::string_view text) const {
  const auto hashes = shingle_hashes(text, static_cast<std::size_t>(options_.ngram));
  return hashes.empty() ? std::vector<std::uint32_t>() : signature_of(hashes);
}

std::vector<std::uint64_t> MinHasher::band_keys(std::span<const std::uint32_t> signature) const {
  std::vector<std::uint64_t> keys;
  const auto rows = static_cast<std::size_t>(options_.rows);
  for (std::size_t begin = 0; begin < signature.size(); begin += rows)
    keys.push_back(checksum(std::as_bytes(signature.subspan(begin, rows))));
  return keys;
}

std::vector<std::uint32_t> shingle_hashes(std::string_view text, std::size_t ngram) {
  const std::vector<std::uint64_t> words = word_hashes(text);
  std::vector<std::uint32_t> hashes;
  if (words.empty()) return hashes;
  const std::size_t size = std::min(ngram, words.size());
  for (std::size_t i = 0; i + size <= words.size(); ++i)
    hashes.push_back(
        static_cast<std::uint32_t>(checksum(std::as_bytes(std::span(words).subspan(i, size)))));
  return hashes;
}

double estimated_jaccard(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) {
  MEGATRON_CHECK(a.size() == b.size() && !a.empty(), a.size(), " hashes against ", b.size());
  std::size_t equal = 0;
  for (std::size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i];
  return static_cast<double>(equal) / static_cast<double>(a.size());
}

}  // namespace megatron
