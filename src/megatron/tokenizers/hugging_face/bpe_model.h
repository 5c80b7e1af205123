// tokenizer.json's "model" of type BPE.
#pragma once

#include <string>

#include "megatron/base/json.h"
#include "megatron/tokenizers/bpe.h"

namespace megatron::hugging_face {

/// `where` names file and field in errors: other model types, missing or mistyped fields, dropout.
Bpe make_bpe(const Json& model, const std::string& where);

}  // namespace megatron::hugging_face
