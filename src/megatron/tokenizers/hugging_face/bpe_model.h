// Reads the "model" of tokenizer.json, which must have type BPE.
#pragma once

#include <string>

#include "megatron/base/json.h"
#include "megatron/tokenizers/bpe.h"

namespace megatron::hugging_face {

/// Throws UserErrors for other model types, missing fields, fields of wrong types, and dropout.
/// `where` names file and field in errors.
Bpe make_bpe(const Json& model, const std::string& where);

}  // namespace megatron::hugging_face
