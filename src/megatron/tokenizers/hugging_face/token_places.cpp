// The places of tokens in a text, which the `tokenizers` package calls offsets.
#include <algorithm>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/tokenizers/hugging_face/hugging_face_tokenizer.h"
#include "megatron/tokenizers/hugging_face/nfc_alignment.h"
#include "megatron/tokenizers/token_spans.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
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
  if (pre_tokenizer_ && byte_level_words_ == nullptr)
    throw UserError({"the places of tokens are known only for byte-level pre-tokenizers", "", ""});
  if (!pre_tokenizer_) return Tokenizer::encode_with_spans(text);
  const auto replaced = replace_invalid_utf8(text);
  if (replaced) text = *replaced;
  std::vector<TokenSpan> spans;
  for (const auto& [span, id] : added_tokens_.split_raw(text)) {
    if (id >= 0) {
      spans.push_back({id, span.begin, span.end});
    } else {
      add_plain_spans(text.substr(span.begin, span.end - span.begin), span.begin, spans);
    }
  }
  widen_to_characters(text, spans);
  for (const auto& trim : post_processor_.trims()) trim_spans(text, trim.keeps_first_space, spans);
  std::vector<TokenSpan> result;
  for (const std::int32_t id : post_processor_.apply({})) result.push_back({id, 0, 0});
  result.insert(result.begin() + static_cast<std::ptrdiff_t>(post_processor_.num_before()),
                spans.begin(), spans.end());
  return result;
}

void HuggingFaceTokenizer::add_plain_spans(std::string_view text, std::size_t offset,
                                           std::vector<TokenSpan>& spans) const {
  std::optional<hugging_face::AlignedText> aligned;
  if (normalizer_) {
    const std::string normalized = normalizer_->apply(std::string(text));
    if (normalized != text) aligned = hugging_face::align_nfc(text);
    if (aligned && aligned->text != normalized)
      throw UserError({"the normalizer changes the text, so the places of its tokens are not known",
                       "", "give text that is normalized already"});
  }
  const std::string_view used = aligned ? aligned->text : text;
  const std::size_t first = spans.size();
  for (const auto& [span, id] : added_tokens_.split_normalized(used)) {
    if (id >= 0) {
      spans.push_back({id, span.begin, span.end});
    } else {
      add_word_spans(used.substr(span.begin, span.end - span.begin), span.begin, spans);
    }
  }
  for (std::size_t i = first; i < spans.size(); ++i) {
    TokenSpan& span = spans[i];
    if (aligned)
      span = {span.id, aligned->places[span.begin].begin, aligned->places[span.end - 1].end};
    span.begin += offset;
    span.end += offset;
  }
}

void HuggingFaceTokenizer::add_word_spans(std::string_view text, std::size_t offset,
                                          std::vector<TokenSpan>& spans) const {
  std::vector<std::int32_t> ids;
  encode_words(text, false, ids);
  std::size_t at = 0;
  for (const std::int32_t id : ids) {
    // A character of the byte-level alphabet stands for each byte.
    const std::size_t size = count_characters(model_->vocabulary().token(id));
    spans.push_back({id, offset + at, offset + at + size});
    at += size;
  }
  if (at != text.size())
    throw UserError({"a part of the text has no tokens, so the places of the others are not known",
                     "\"" + std::string(text.substr(0, 80)) + "\"", ""});
}

void HuggingFaceTokenizer::trim_spans(std::string_view text, bool keeps_first_space,
                                      std::vector<TokenSpan>& spans) const {
  const std::vector<std::size_t> starts = character_starts(text);
  const auto character_at = [&](std::size_t byte) {
    return static_cast<std::size_t>(std::lower_bound(starts.begin(), starts.end(), byte) -
                                    starts.begin());
  };
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const bool is_added = added_tokens_.decoded(spans[i].id) != nullptr;
    // The package takes the matched text for the token, with the spaces that it stripped.
    const std::string_view token = is_added
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
