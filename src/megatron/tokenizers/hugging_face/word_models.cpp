#include "megatron/tokenizers/hugging_face/word_models.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"

namespace megatron::hugging_face {
namespace {

std::int32_t find_unk(const Vocabulary& vocabulary, const Json& model, const std::string& where) {
  const std::string unk =
      model.contains("unk_token") ? json_string(model, "unk_token", where) : "[UNK]";
  const std::int32_t id = vocabulary.find(unk);
  if (id < 0)
    throw UserError({where + ": unk_token \"" + unk + "\" is not in the vocabulary", "", ""});
  return id;
}

}  // namespace

WordPiece::WordPiece(const Json& model, const std::string& where)
    : vocabulary_(json_at(model, "vocab", where), where + ".vocab"),
      unk_id_(find_unk(vocabulary_, model, where)) {
  const std::string prefix = model.contains("continuing_subword_prefix")
                                 ? json_string(model, "continuing_subword_prefix", where)
                                 : "##";
  const std::int64_t limit = model.contains("max_input_chars_per_word")
                                 ? json_int(model, "max_input_chars_per_word", where)
                                 : 100;
  if (limit < 0)
    throw UserError({where + ": field 'max_input_chars_per_word' must not be negative",
                     std::to_string(limit), ""});
  max_characters_ = static_cast<std::size_t>(limit);
  for (std::int32_t id = 0; id < vocabulary_.id_limit(); ++id) {
    const std::string_view token = vocabulary_.token(id);
    if (token.empty()) continue;
    first_.add(token, id);
    if (token.size() > prefix.size() && token.starts_with(prefix))
      following_.add(token.substr(prefix.size()), id);
  }
  first_.finish();
  following_.finish();
}

void WordPiece::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  const auto is_start = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  if (word.size() > max_characters_ && static_cast<std::size_t>(std::count_if(
                                           word.begin(), word.end(), is_start)) > max_characters_) {
    ids.push_back(unk_id_);
    return;
  }
  const std::size_t first = ids.size();
  for (std::size_t at = 0; at < word.size();) {
    std::size_t length = 0;
    std::int32_t id = -1;
    (at == 0 ? first_ : following_)
        .for_each_prefix(word.substr(at), [&](std::size_t found_length, std::int32_t found_id) {
          length = found_length;
          id = found_id;
        });
    if (id < 0) {
      ids.resize(first);
      ids.push_back(unk_id_);
      return;
    }
    ids.push_back(id);
    at += length;
  }
}

WordLevel::WordLevel(const Json& model, const std::string& where)
    : vocabulary_(json_at(model, "vocab", where), where + ".vocab"),
      unk_id_(find_unk(vocabulary_, model, where)) {}

void WordLevel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.empty()) return;
  const std::int32_t id = vocabulary_.find(word);
  ids.push_back(id >= 0 ? id : unk_id_);
}

}  // namespace megatron::hugging_face
