// The places of tokens in a text, which the `tokenizers` package calls offsets.
#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/tokenizers/hugging_face/aligned_text.h"
#include "megatron/tokenizers/hugging_face/hugging_face_tokenizer.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {

using hugging_face::AlignedText;

namespace {

/// Returns how many characters at an end of the token are spaces, as the package sees them: Ġ, and
/// white space of added tokens.
std::size_t count_spaces(std::string_view token, bool at_end) {
  constexpr char32_t kSpace = 0x120;
  std::size_t count = 0;
  for (std::size_t begin = 0, end = token.size(); begin < end; ++count) {
    const char32_t c = at_end ? previous_code_point(token, end) : next_code_point(token, begin);
    if (c != kSpace && !is_white_space(c)) break;
  }
  return count;
}

}  // namespace

std::vector<TokenSpan> HuggingFaceTokenizer::encode_with_spans(std::string_view text) const {
  const auto replaced = replace_invalid_utf8(text);
  if (replaced) text = *replaced;
  std::vector<TokenSpan> spans;
  std::vector<bool> is_added;
  for (const auto& [span, id] : added_tokens_.split_raw(text)) {
    if (id >= 0) {
      spans.push_back({id, span.begin, span.end});
      is_added.push_back(true);
      continue;
    }
    const std::size_t first = spans.size();
    add_plain_spans(text.substr(span.begin, span.end - span.begin), span.begin == 0, spans,
                    is_added);
    for (std::size_t i = first; i < spans.size(); ++i) {
      spans[i].begin += span.begin;
      spans[i].end += span.begin;
    }
  }
  for (const auto& trim : post_processor_.trims())
    trim_spans(text, trim.keeps_first_space, is_added, spans);
  std::vector<TokenSpan> result;
  for (const std::int32_t id : post_processor_.apply({})) result.push_back({id, 0, 0});
  result.insert(result.begin() + static_cast<std::ptrdiff_t>(post_processor_.num_before()),
                spans.begin(), spans.end());
  return result;
}

void HuggingFaceTokenizer::add_plain_spans(std::string_view text, bool starts_document,
                                           std::vector<TokenSpan>& spans,
                                           std::vector<bool>& is_added) const {
  AlignedText aligned(text);
  if (normalizer_) {
    normalizer_->align(aligned);
    MEGATRON_CHECK(aligned.text == normalizer_->apply(std::string(text)),
                   "the normalizer gives another text with places");
  }
  for (const auto& [span, id] : added_tokens_.split_normalized(aligned.text)) {
    if (id >= 0) {
      const Span place = aligned.place_of(span.begin, span.end);
      spans.push_back({id, place.begin, place.end});
      is_added.push_back(true);
    } else {
      AlignedText segment = aligned;
      segment.cut(span.begin, span.end);
      const bool is_first = span.begin == 0 && aligned.places.front().begin == 0;
      add_word_spans(std::move(segment), starts_document && is_first, spans);
      is_added.resize(spans.size(), false);
    }
  }
}

void HuggingFaceTokenizer::add_word_spans(AlignedText segment, bool starts_document,
                                          std::vector<TokenSpan>& spans) const {
  const std::size_t size = segment.text.size();
  hugging_face::PreTokenizedString words{
      std::move(segment.text), {{0, size}}, starts_document, std::move(segment.places)};
  if (pre_tokenizer_) pre_tokenizer_->apply(words);
  for (const Span& word : words.spans) {
    const std::size_t first = spans.size(), word_size = word.end - word.begin;
    model_->encode_with_spans(std::string_view(words.text).substr(word.begin, word_size), spans);
    for (std::size_t i = first; i < spans.size(); ++i) {
      auto& [id, begin, end] = spans[i];
      if (end > word_size) continue;  // the package leaves such a place as it is
      if (begin == end) continue;
      const std::size_t last = word.begin + end - 1;
      begin = words.places[word.begin + begin].begin;
      end = words.places[last].end;
    }
  }
}

void HuggingFaceTokenizer::trim_spans(std::string_view text, bool keeps_first_space,
                                      const std::vector<bool>& is_added,
                                      std::vector<TokenSpan>& spans) const {
  const std::vector<std::size_t> starts = character_starts(text);
  const auto character_at = [&](std::size_t byte) {
    return static_cast<std::size_t>(std::lower_bound(starts.begin(), starts.end(), byte) -
                                    starts.begin());
  };
  for (std::size_t i = 0; i < spans.size(); ++i) {
    // The package takes the matched text for an added token, with the spaces that it stripped.
    const std::string_view token = is_added[i]
                                       ? text.substr(spans[i].begin, spans[i].end - spans[i].begin)
                                       : model_->vocabulary().token(spans[i].id);
    std::size_t begin = character_at(spans[i].begin), end = character_at(spans[i].end);
    const std::size_t before = count_spaces(token, false);
    const bool is_prefix = keeps_first_space && (i == 0 || begin == 0) && before == 1;
    if (!is_prefix) begin = std::min(begin + before, end);
    if (const std::size_t after = count_spaces(token, true); end >= after)
      end = std::max(end - after, begin);
    spans[i] = {spans[i].id, starts[begin], starts[end]};
  }
}

}  // namespace megatron
