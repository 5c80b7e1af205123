// MinHash signatures of texts (Broder, 1997) and their bands for locality-sensitive hashing. The
// permutations are those of datasketch's scheme affine32, so equal n-grams give equal signatures.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace megatron {

struct MinHashOptions {
  std::int64_t ngram = 5;  ///< words in a shingle
  std::int64_t bands = 14;
  std::int64_t rows = 8;  ///< permutations in a band
  std::int64_t seed = 1;  ///< of numpy's RandomState, which draws the permutations
};

/// Computes signatures. Two texts whose sets of shingles have the Jaccard similarity s share a band
/// with the probability 1 − (1 − s^rows)^bands. Immutable; threads may share it.
class MinHasher {
 public:
  explicit MinHasher(const MinHashOptions& options);

  /// Returns bands × rows minima of a text of valid UTF-8; empty for a text without words.
  std::vector<std::uint32_t> signature(std::string_view text) const;
  /// Returns the minima of a set of 32-bit hashes.
  std::vector<std::uint32_t> signature_of(std::span<const std::uint32_t> hashes) const;
  /// Returns one key per band of a signature.
  std::vector<std::uint64_t> band_keys(std::span<const std::uint32_t> signature) const;

 private:
  MinHashOptions options_;
  std::vector<std::uint32_t> multipliers_, addends_;  ///< padded to whole blocks
};

/// Returns one 32-bit hash per n-gram of words: XXH3 of the XXH3 hashes of its words. Words are
/// runs of letters, marks and numbers in lower case; a character of a script that is written
/// without spaces (Han, kana, Thai, Lao, Khmer, Myanmar) is one. A text of fewer words is one
/// n-gram.
std::vector<std::uint32_t> shingle_hashes(std::string_view text, std::size_t ngram);

/// Returns the share of equal minima, an estimate of the Jaccard similarity of two sets.
double estimated_jaccard(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b);

}  // namespace megatron
