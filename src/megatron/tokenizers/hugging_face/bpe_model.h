// Reads the BPE "model" of tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "megatron/base/json_fwd.h"
#include "megatron/tokenizers/hugging_face/model.h"

namespace megatron::hugging_face {

/// Throws UserErrors for missing fields, fields of wrong types, and dropout. `lists` holds the
/// lists that are not in `model`; null: they are.
std::unique_ptr<Model> make_bpe_model(const JsonCursor& model, ModelLists* lists);

}  // namespace megatron::hugging_face
