// Splits words at matches with the five behaviors of the `tokenizers` package.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/tokenizers/hugging_face/pre_tokenizer.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {

enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

/// Returns the behavior that field "behavior" of `component` names.
SplitBehavior split_behavior_of(const JsonCursor& component);

/// Splits one word after another and collects the results.
class Splitter {
 public:
  explicit Splitter(SplitBehavior behavior, bool invert = false)
      : behavior_(behavior), invert_(invert) {}

  /// Splits `word` at `matches`, which are in order and inside the word, and appends to spans().
  void cut(const Span& word, const std::vector<Span>& matches);

  std::vector<Span>& spans() { return spans_; }

 private:
  struct Segment {
    Span span;
    bool is_match;
  };
  void push(const Span& span) {
    if (span.begin != span.end) spans_.push_back(span);
  }
  void merge_with_previous(std::size_t first);
  void merge_with_next(std::size_t first);
  void merge_contiguous();

  SplitBehavior behavior_;
  bool invert_;
  std::vector<Segment> segments_;
  std::vector<Span> spans_;
};

/// Splits every word at the characters for which `is_match` returns true.
template <class Predicate>
void split_at_characters(PreTokenizedString& words, SplitBehavior behavior, Predicate is_match) {
  Splitter splitter(behavior);
  std::vector<Span> matches;
  for (const Span& word : words.spans) {
    matches.clear();
    for (std::size_t i = word.begin; i < word.end;) {
      const std::size_t begin = i;
      if (is_match(next_code_point(words.text, i))) matches.push_back({begin, i});
    }
    splitter.cut(word, matches);
  }
  words.spans = std::move(splitter.spans());
}

/// Splits every word at the matches of `pattern`.
void split_at_regex(PreTokenizedString& words, const Regex& pattern, SplitBehavior behavior,
                    bool invert);

}  // namespace megatron::hugging_face
