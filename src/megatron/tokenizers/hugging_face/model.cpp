#include "megatron/tokenizers/hugging_face/model.h"

#include <nlohmann/json.hpp>

#include "megatron/base/json.h"
#include "megatron/tokenizers/hugging_face/component.h"

namespace megatron::hugging_face {
namespace {

/// Returns the type of a model, which older files leave out, by its fields.
std::string type_of(const JsonCursor& model) {
  if (!model->is_object() || model->contains("type")) return component_type(model);
  if (model->contains("merges")) return "BPE";
  if (model->contains("max_input_chars_per_word")) return "WordPiece";
  if (model->contains("vocab") && model->at("vocab").is_array()) return "Unigram";
  if (model->contains("vocab") && model->contains("unk_token")) return "WordLevel";
  return component_type(model);
}

}  // namespace

std::unique_ptr<Model> make_model(const JsonCursor& model, ModelLists* lists) {
  const std::string type = lists != nullptr && !model->contains("type") ? "BPE" : type_of(model);
  if (type == "BPE") return make_bpe_model(model, lists);
  if (type == "WordPiece") return make_word_piece(model, lists);
  if (type == "Unigram") return make_unigram(model, lists);
  if (type == "WordLevel") return make_word_level(model, lists);
  unsupported_component(type, model.place());
}

}  // namespace megatron::hugging_face
