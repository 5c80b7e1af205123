#include "megatron/tokenizers/independent_parts.h"

#include <algorithm>

namespace megatron {
namespace {

/// Nearly all boundaries between such letters can be crossed, so that it is not worth a search.
bool is_lowercase(char c) { return c >= 'a' && c <= 'z'; }

}  // namespace

void IndependentParts::add(std::string_view token) {
  for (std::size_t at = 1; at < token.size(); ++at) {
    if (!is_boundary(token, at)) continue;
    const std::size_t before = std::min(at, kContext),
                      after = std::min(token.size() - at, kContext);
    const std::size_t bit = bit_of(token, at, before, after), pair = pair_at(token, at);
    neighbors_[pair >> 6] |= std::uint64_t{1} << (pair & 63);
    bits_[bit >> 6] |= std::uint64_t{1} << (bit & 63);
    if (before < kContext || after < kContext) pairs_[pair >> 6] |= std::uint64_t{1} << (pair & 63);
  }
}

/// Returns false only if no token can stand across the boundary at `at`.
bool IndependentParts::may_be_crossed(std::string_view text, std::size_t at) const {
  const std::size_t pair = pair_at(text, at);
  if ((neighbors_[pair >> 6] >> (pair & 63) & 1) == 0) return false;
  if (is_lowercase(text[at - 1]) && is_lowercase(text[at])) return true;
  const std::size_t most_before = std::min(at, kContext),
                    most_after = std::min(text.size() - at, kContext);
  if (most_before == kContext && most_after == kContext &&
      has(bit_of(text, at, kContext, kContext)))
    return true;
  if ((pairs_[pair >> 6] >> (pair & 63) & 1) == 0) return false;
  for (std::size_t before = 1; before <= most_before; ++before)
    for (std::size_t after = 1; after <= most_after; ++after)
      if (has(bit_of(text, at, before, after))) return true;
  return false;
}

}  // namespace megatron
