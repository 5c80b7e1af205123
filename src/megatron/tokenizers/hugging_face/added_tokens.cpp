#include "megatron/tokenizers/hugging_face/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {

bool ends_with_word(std::string_view text) {
  std::size_t end = text.size();
  return end > 0 && is_word(previous_code_point(text, end));
}

bool starts_with_word(std::string_view text) {
  std::size_t position = 0;
  return !text.empty() && is_word(next_code_point(text, position));
}

}  // namespace

AddedTokens::AddedTokens(const JsonCursor& list, const Vocabulary& vocabulary,
                         const Normalizer* normalizer)
    : next_id_(vocabulary.size()) {
  for (const JsonCursor& entry : list.elements()) add(entry, vocabulary, normalizer);
}

std::int32_t AddedTokens::checked_id(const JsonCursor& entry, const std::string& content,
                                     const Vocabulary& vocabulary) {
  const std::string where = entry.place();
  const std::int64_t id = entry["id"].integer();
  if (id < 0 || id > kMaxTokenId)
    throw UserError({where + ": field 'id' must be from 0 to " + std::to_string(kMaxTokenId),
                     std::to_string(id), ""});
  if (tokens_.contains(static_cast<std::int32_t>(id)))
    throw UserError(
        {where + ": id " + std::to_string(id) + " is given twice",
         "to \"" + tokens_.at(static_cast<std::int32_t>(id)).decoded + "\" and \"" + content + "\"",
         ""});
  const std::int32_t known = vocabulary.find(content);
  const std::int32_t expected = known >= 0 ? known : next_id_;
  if (id != expected)
    throw UserError({where + ": token \"" + content + "\" must have id " + std::to_string(expected),
                     std::to_string(id),
                     known >= 0 ? "the model's vocabulary gives it this id"
                                : "added tokens follow the vocabulary without gaps"});
  if (known < 0) ++next_id_;
  return expected;
}

void AddedTokens::add(const JsonCursor& entry, const Vocabulary& vocabulary,
                      const Normalizer* normalizer) {
  const std::string where = entry.place();
  const std::string content = entry["content"].text();
  if (content.empty())
    throw UserError({where + ": field 'content' is empty", "", "an added token needs a text"});
  const std::int32_t id = checked_id(entry, content, vocabulary);
  const bool is_normalized = entry["normalized"].boolean();
  Token token{is_normalized && normalizer != nullptr ? normalizer->apply(content) : content,
              entry["special"].boolean(), entry["single_word"].boolean(), entry["lstrip"].boolean(),
              entry["rstrip"].boolean()};
  if (token.decoded.empty())
    throw UserError({where + ": token \"" + content + "\" is empty once normalized", "",
                     "set normalized to false"});
  if (!(is_normalized ? normalized_ : raw_).add(token.decoded, id))
    throw UserError(
        {where + ": two added tokens have the text \"" + token.decoded + "\"", "", "remove one"});
  id_of_content_.emplace(content, id);
  tokens_.emplace(id, std::move(token));
  id_limit_ = std::max(id_limit_, id + 1);
}

void AddedTokens::add_special(const std::string& content, const Vocabulary& vocabulary) {
  if (content.empty()) throw UserError({"an added special token is empty", "", "give it a text"});
  if (const auto known = id_of_content_.find(content); known != id_of_content_.end()) {
    tokens_.at(known->second).special = true;
    return;
  }
  const std::int32_t in_model = vocabulary.find(content);
  const std::int32_t id = in_model >= 0 ? in_model : next_id_++;
  raw_.add(content, id);
  id_of_content_.emplace(content, id);
  tokens_.emplace(id, Token{.decoded = content, .special = true});
  id_limit_ = std::max(id_limit_, id + 1);
}

std::vector<AddedTokens::Segment> AddedTokens::split(std::string_view text,
                                                     const TokenTrie& trie) const {
  std::vector<Segment> stretches;
  std::size_t done = 0;
  for (std::size_t from = 0; !trie.empty() && from < text.size();) {
    auto [span, id] = trie.find(text, from);
    if (id < 0) break;
    from = span.end;
    const Token& token = tokens_.at(id);
    if (token.single_word &&
        (ends_with_word(text.substr(0, span.begin)) || starts_with_word(text.substr(span.end))))
      continue;
    if (token.lstrip)
      span.begin = std::max(start_of_trailing_space(text.substr(0, span.begin)), done);
    if (token.rstrip) span.end += end_of_leading_space(text.substr(span.end));
    if (span.begin >= span.end) continue;  // white space that the token before has taken
    if (done < span.begin) stretches.push_back({{done, span.begin}, -1});
    stretches.push_back({span, id});
    done = span.end;
  }
  if (done != text.size()) stretches.push_back({{done, text.size()}, -1});
  return stretches;
}

std::int32_t AddedTokens::find(const std::string& content) const {
  const auto found = id_of_content_.find(content);
  return found == id_of_content_.end() ? -1 : found->second;
}

const std::string* AddedTokens::decoded(std::int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second.decoded;
}

bool AddedTokens::is_special(std::int32_t id) const {
  const auto found = tokens_.find(id);
  return found != tokens_.end() && found->second.special;
}

}  // namespace megatron::hugging_face
