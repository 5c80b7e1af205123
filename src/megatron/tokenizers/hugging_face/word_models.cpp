// The models of tokenizer.json that look whole words or their beginnings up: WordPiece and
// WordLevel.
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/hugging_face/model.h"
#include "megatron/tokenizers/hugging_face/tokenizer_json.h"
#include "megatron/tokenizers/piece_trie.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {

Vocabulary vocabulary_of(const JsonCursor& model, ModelLists* lists) {
  if (lists != nullptr) return std::move(lists->vocabulary);
  return Vocabulary(*model["vocab"], model["vocab"].place());
}

std::int32_t find_unk(const Vocabulary& vocabulary, const JsonCursor& model) {
  const std::string unk = model->contains("unk_token") ? model["unk_token"].text() : "[UNK]";
  const std::int32_t id = vocabulary.find(unk);
  if (id < 0)
    throw UserError(
        {model.place() + ": unk_token \"" + unk + "\" is not in the vocabulary", "", ""});
  return id;
}

/// WordPiece (Schuster and Nakajima, 2012), as in BERT: takes the longest token that the rest of
/// the word begins with. A word with an unknown part is one unk_token.
class WordPiece : public Model {
 public:
  /// `lists` holds the vocabulary if it is not null; else `model` does.
  WordPiece(const JsonCursor& model, ModelLists* lists);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  /// Appends the ids of `word`. Returns false after the first part that is unknown.
  bool segment(std::string_view word, std::vector<std::int32_t>& ids) const;

  Vocabulary vocabulary_;
  PieceTrie first_, following_;  ///< tokens of a word's beginning, and those after the prefix
  std::int32_t unk_id_;
  std::size_t max_characters_;
};

/// Encodes a word as one token.
class WordLevel : public Model {
 public:
  WordLevel(const JsonCursor& model, ModelLists* lists);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  std::int32_t unk_id_;
};

WordPiece::WordPiece(const JsonCursor& model, ModelLists* lists)
    : vocabulary_(vocabulary_of(model, lists)), unk_id_(find_unk(vocabulary_, model)) {
  const std::string prefix = model->contains("continuing_subword_prefix")
                                 ? model["continuing_subword_prefix"].text()
                                 : "##";
  const std::int64_t limit = model->contains("max_input_chars_per_word")
                                 ? model["max_input_chars_per_word"].integer()
                                 : 100;
  if (limit < 0)
    throw UserError({model.place() + ": field 'max_input_chars_per_word' must not be negative",
                     std::to_string(limit), ""});
  max_characters_ = static_cast<std::size_t>(limit);
  first_.reserve(static_cast<std::size_t>(vocabulary_.size()));
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

bool WordPiece::segment(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.size() > max_characters_ && count_characters(word) > max_characters_) return false;
  for (std::size_t at = 0; at < word.size();) {
    std::size_t length = 0;
    std::int32_t id = -1;
    (at == 0 ? first_ : following_)
        .for_each_prefix(word.substr(at), [&](std::size_t found_length, std::int32_t found_id) {
          length = found_length;
          id = found_id;
        });
    if (id < 0) return false;
    ids.push_back(id);
    at += length;
  }
  return true;
}

void WordPiece::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  const std::size_t first = ids.size();
  if (segment(word, ids)) return;
  ids.resize(first);
  ids.push_back(unk_id_);
}

WordLevel::WordLevel(const JsonCursor& model, ModelLists* lists)
    : vocabulary_(vocabulary_of(model, lists)), unk_id_(find_unk(vocabulary_, model)) {}

void WordLevel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.empty()) return;
  const std::int32_t id = vocabulary_.find(word);
  ids.push_back(id >= 0 ? id : unk_id_);
}

}  // namespace

std::unique_ptr<Model> make_word_piece(const JsonCursor& model, ModelLists* lists) {
  return std::make_unique<WordPiece>(model, lists);
}
std::unique_ptr<Model> make_word_level(const JsonCursor& model, ModelLists* lists) {
  return std::make_unique<WordLevel>(model, lists);
}

}  // namespace megatron::hugging_face
