#include "megatron/tokenizers/character_set.h"

#include <algorithm>
#include <cstdint>
#include <sstream>

namespace megatron {
namespace {

constexpr char32_t kLastCharacter = 0x10FFFF;
// PCRE2 takes no surrogates, which are not in valid UTF-8, as the ends of ranges.
constexpr char32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

bool is_surrogate(char32_t c) { return c >= kFirstSurrogate && c <= kLastSurrogate; }

}  // namespace

void CharacterSet::append(char32_t first, char32_t last) {
  if (!ranges_.empty() && ranges_.back().last + 1 == first) {
    ranges_.back().last = last;
  } else {
    ranges_.push_back({first, last});
  }
}

CharacterSet CharacterSet::complement() const {
  CharacterSet others;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) others.append(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLastCharacter) others.append(next, kLastCharacter);
  return others;
}

CharacterSet CharacterSet::intersected(const CharacterSet& other) const {
  CharacterSet both;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const char32_t first = std::max(a->first, b->first), last = std::min(a->last, b->last);
    if (first <= last) both.append(first, last);
    if (a->last < b->last) {
      ++a;
    } else {
      ++b;
    }
  }
  return both;
}

CharacterSet CharacterSet::united(const CharacterSet& other) const {
  return complement().intersected(other.complement()).complement();
}

std::string CharacterSet::class_members() const {
  std::ostringstream out;
  out << std::hex;
  for (const Range& range : ranges_) {
    const char32_t first = is_surrogate(range.first) ? kLastSurrogate + 1 : range.first;
    const char32_t last = is_surrogate(range.last) ? kFirstSurrogate - 1 : range.last;
    if (first > last) continue;
    out << "\\x{" << static_cast<std::uint32_t>(first) << '}';
    if (last != first) out << "-\\x{" << static_cast<std::uint32_t>(last) << '}';
  }
  return out.str();
}

}  // namespace megatron
