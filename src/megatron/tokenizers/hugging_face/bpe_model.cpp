// The BPE model of tokenizer.json.
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/bpe.h"
#include "megatron/tokenizers/hugging_face/component.h"
#include "megatron/tokenizers/hugging_face/model.h"
#include "megatron/tokenizers/hugging_face/tokenizer_json.h"

namespace megatron::hugging_face {
namespace {

std::string string_or_empty(const JsonCursor& model, const std::string& key) {
  const auto field = find_given(model, key);
  return field ? field->text() : std::string();
}

std::pair<std::string, std::string> read_merge(const Json& entry, const std::string& where) {
  const auto fail = [&]() -> std::pair<std::string, std::string> {
    throw UserError({where + " must be \"left right\" or [\"left\", \"right\"]", entry.dump(), ""});
  };
  if (entry.is_array()) {
    if (entry.size() != 2 || !entry[0].is_string() || !entry[1].is_string()) return fail();
    return {entry[0].get<std::string>(), entry[1].get<std::string>()};
  }
  if (!entry.is_string()) return fail();
  const std::string& text = entry.get_ref<const std::string&>();
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) return fail();
  return {text.substr(0, space), text.substr(space + 1)};
}

Bpe::Merges read_merges(const JsonCursor& model) {
  const JsonCursor list = model["merges"];
  const Json& entries = list.array();
  Bpe::Merges merges;
  merges.reserve(entries.size());
  std::size_t index = 0;
  for (const Json& entry : entries) {
    const std::size_t at = index++;
    if (entry.is_string() && entry.get_ref<const std::string&>().starts_with("#version")) continue;
    merges.push_back(read_merge(entry, list.place() + "[" + std::to_string(at) + "]"));
  }
  return merges;
}

class BpeModel : public Model {
 public:
  explicit BpeModel(Bpe bpe) : bpe_(std::move(bpe)) {}
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override {
    bpe_.encode(word, ids);
  }
  const Vocabulary& vocabulary() const override { return bpe_.vocabulary(); }
  bool has_independent_parts() const override { return bpe_.merges_bytes_only(); }
  void merge_part(std::string_view part, std::vector<std::int32_t>& ids) const override {
    bpe_.merge(part, ids);
  }

 private:
  Bpe bpe_;
};

}  // namespace

std::unique_ptr<Model> make_bpe_model(const JsonCursor& model, ModelLists* lists) {
  if (const auto dropout = find_given(model, "dropout"); dropout && dropout->number() != 0)
    throw UserError({dropout->name() + " must be null", (*dropout)->dump(),
                     "random merges give a different text every time"});
  BpeOptions options;
  if (const auto token = find_given(model, "unk_token")) options.unk_token = token->text();
  options.continuing_subword_prefix = string_or_empty(model, "continuing_subword_prefix");
  options.end_of_word_suffix = string_or_empty(model, "end_of_word_suffix");
  options.fuse_unk = bool_or(model, "fuse_unk", false);
  options.byte_fallback = bool_or(model, "byte_fallback", false);
  options.ignore_merges = bool_or(model, "ignore_merges", false);
  if (lists != nullptr)
    return std::make_unique<BpeModel>(
        Bpe(std::move(lists->vocabulary), lists->merges, std::move(options), model.place()));
  const JsonCursor vocabulary = model["vocab"];
  return std::make_unique<BpeModel>(Bpe(Vocabulary(*vocabulary, vocabulary.place()),
                                        read_merges(model), std::move(options), model.place()));
}

}  // namespace megatron::hugging_face
