// The Unigram model (Kudo, 2018) of tokenizer.json: the segmentation of highest total score, by
// Viterbi's algorithm in float64.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/best_segmentation.h"
#include "megatron/tokenizers/character_trie.h"
#include "megatron/tokenizers/hugging_face/component.h"
#include "megatron/tokenizers/hugging_face/json_number.h"
#include "megatron/tokenizers/hugging_face/model.h"
#include "megatron/tokenizers/hugging_face/tokenizer_json.h"
#include "megatron/tokenizers/regex.h"

namespace megatron::hugging_face {
namespace {

constexpr double kUnknownPenalty = 10;

std::string byte_token(unsigned byte) {
  char name[8];
  std::snprintf(name, sizeof name, "<0x%02X>", byte);
  return name;
}

class Unigram : public Model {
 public:
  /// `lists` holds pieces and scores if it is not null; else `model` does.
  Unigram(const JsonCursor& model, ModelLists* lists);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  void read_pieces(const JsonCursor& model);
  void append(std::string_view piece, std::vector<std::int32_t>& ids) const;
  std::int32_t unk_or_throw(std::string_view text) const;

  Vocabulary vocabulary_;
  CharacterTrie trie_;
  std::vector<double> scores_;  ///< by id
  double unk_score_;
  std::int32_t unk_id_ = -1;
  bool byte_fallback_;
  std::vector<std::int32_t> id_of_byte_;  ///< ids of <0x00>…<0xFF>
};

void Unigram::read_pieces(const JsonCursor& model) {
  std::vector<std::string_view> tokens;  // of `model`
  const JsonCursor vocab = model["vocab"];
  for (const Json& entry : vocab.array()) {
    const std::string place = vocab.place() + "[" + std::to_string(tokens.size()) + "]";
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      throw UserError({place + " must be [token, score]", entry.dump(), ""});
    tokens.push_back(entry[0].get_ref<const std::string&>());
    scores_.push_back(read_json_number(entry[1].dump()));
  }
  vocabulary_ = Vocabulary::numbered(tokens, vocab.place());
}

Unigram::Unigram(const JsonCursor& model, ModelLists* lists)
    : byte_fallback_(bool_or(model, "byte_fallback", false)) {
  if (lists != nullptr) {
    vocabulary_ = std::move(lists->vocabulary);
    scores_ = std::move(lists->scores);
  } else {
    read_pieces(model);
  }
  const auto infinite = std::ranges::find_if(scores_, [](double s) { return !std::isfinite(s); });
  if (infinite != scores_.end())
    throw UserError({model.place() + ".vocab[" + std::to_string(infinite - scores_.begin()) +
                         "]: the score is out of range",
                     "", ""});
  if (const auto unk_id = find_given(model, "unk_id")) {
    const std::int64_t id = unk_id->integer();
    if (id < 0 || id >= vocabulary_.id_limit())
      throw UserError(
          {unk_id->name() + " must be an id of the vocabulary", std::to_string(id), ""});
    unk_id_ = static_cast<std::int32_t>(id);
  }
  trie_.reserve(static_cast<std::size_t>(vocabulary_.size()));
  for (std::int32_t id = 0; id < vocabulary_.id_limit(); ++id)
    if (const std::string_view token = vocabulary_.token(id); !token.empty()) trie_.add(token, id);
  trie_.finish();
  unk_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  for (unsigned byte = 0; byte < 256; ++byte)
    id_of_byte_.push_back(vocabulary_.find(byte_token(byte)));
}

std::int32_t Unigram::unk_or_throw(std::string_view text) const {
  if (unk_id_ < 0)
    throw UserError({"the tokenizer's Unigram model has no unk_id, and a text has an unknown part",
                     "\"" + std::string(text.substr(0, 80)) + "\"",
                     "set model.unk_id in tokenizer.json"});
  return unk_id_;
}

void Unigram::append(std::string_view piece, std::vector<std::int32_t>& ids) const {
  const std::int32_t id = vocabulary_.find(piece);
  if (id >= 0) {
    ids.push_back(id);
    return;
  }
  const auto id_of = [this](char byte) { return id_of_byte_[static_cast<unsigned char>(byte)]; };
  if (byte_fallback_ &&
      std::all_of(piece.begin(), piece.end(), [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : piece) ids.push_back(id_of(byte));
  } else {
    ids.push_back(unk_or_throw(piece));
  }
}

void Unigram::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  const auto score_of = [&](std::int32_t id) { return scores_[static_cast<std::size_t>(id)]; };
  TextPart last;  // the part before, which may continue: a run of unknown characters is one part
  const auto append_last = [&] {
    if (last.end > 0) append(word.substr(last.begin, last.end - last.begin), ids);
  };
  thread_local BestSegmentation<double> search;  // keeps its memory for the next word
  search.run(
      trie_, word, score_of, unk_score_,
      [&](std::string_view unknown) { return unk_or_throw(unknown); },
      [&](const TextPart& part) {
        if (unk_id_ >= 0 && part.id == unk_id_ && last.id == unk_id_) {
          last.end = part.end;
          return;
        }
        append_last();
        last = part;
      });
  append_last();
}

}  // namespace

std::unique_ptr<Model> make_unigram(const JsonCursor& model, ModelLists* lists) {
  return std::make_unique<Unigram>(model, lists);
}

}  // namespace megatron::hugging_face
