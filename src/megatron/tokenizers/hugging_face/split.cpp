#include "megatron/tokenizers/hugging_face/split.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/unicode.h"

namespace megatron::hugging_face {

SplitBehavior split_behavior_of(const JsonCursor& component) {
  const std::string name = component["behavior"].text();
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  throw UserError({component.place() +
                       ": field 'behavior' must be Isolated, Removed, MergedWithPrevious, "
                       "MergedWithNext or Contiguous",
                   "'" + name + "'", ""});
}

void Splitter::cut(const Span& word, const std::vector<Span>& matches) {
  std::size_t at = word.begin;
  segments_.clear();
  for (const Span& match : matches) {
    if (at != match.begin) segments_.push_back({{at, match.begin}, invert_});
    segments_.push_back({match, !invert_});
    at = match.end;
  }
  if (at != word.end) segments_.push_back({{at, word.end}, invert_});
  switch (behavior_) {
    case SplitBehavior::isolated:
      for (const Segment& stretch : segments_) push(stretch.span);
      break;
    case SplitBehavior::removed:
      for (const Segment& stretch : segments_)
        if (!stretch.is_match) push(stretch.span);
      break;
    case SplitBehavior::merged_with_previous:
      merge_with_previous(spans_.size());
      break;
    case SplitBehavior::merged_with_next:
      merge_with_next(spans_.size());
      break;
    case SplitBehavior::contiguous:
      merge_contiguous();
      break;
  }
}

void Splitter::merge_with_previous(std::size_t first) {
  bool previous_match = false;
  for (const Segment& stretch : segments_) {
    if (stretch.is_match && !previous_match && spans_.size() > first) {
      spans_.back().end = stretch.span.end;
    } else {
      push(stretch.span);
    }
    previous_match = stretch.is_match;
  }
}

void Splitter::merge_with_next(std::size_t first) {
  bool previous_match = false;
  for (auto stretch = segments_.rbegin(); stretch != segments_.rend(); ++stretch) {
    if (stretch->is_match && !previous_match && spans_.size() > first) {
      spans_.back().begin = stretch->span.begin;
    } else {
      push(stretch->span);
    }
    previous_match = stretch->is_match;
  }
  std::reverse(spans_.begin() + static_cast<std::ptrdiff_t>(first), spans_.end());
}

void Splitter::merge_contiguous() {
  for (std::size_t i = 0; i < segments_.size();) {
    std::size_t end = i + 1;
    while (end < segments_.size() && segments_[end].is_match == segments_[i].is_match) ++end;
    push({segments_[i].span.begin, segments_[end - 1].span.end});
    i = end;
  }
}

void split_at_regex(PreTokenizedString& words, const Regex& pattern, SplitBehavior behavior,
                    bool invert) {
  std::string storage;
  const std::string_view subject = replace_unassigned_characters(words.text, storage);
  Regex::Finder finder(pattern);
  Splitter splitter(behavior, invert);
  std::vector<Span> matches;
  for (const Span& word : words.spans) {
    matches.clear();
    finder.find_all(subject.substr(word.begin, word.end - word.begin), word.begin, matches);
    splitter.cut(word, matches);
  }
  words.spans = std::move(splitter.spans());
}

}  // namespace megatron::hugging_face
