// The normalizers of tokenizer.json that rewrite character by character for BERT and for
// SentencePiece models.
#pragma once

#include <memory>
#include <string>

#include "megatron/base/json_fwd.h"
#include "megatron/tokenizers/hugging_face/normalizer.h"

namespace megatron::hugging_face {

/// BertNormalizer: removes controls, puts spaces around Chinese characters, strips accents and
/// lowercases, each if its field says so.
std::unique_ptr<Normalizer> make_bert_normalizer(const JsonCursor& component);

/// Nmt: removes controls and writes unusual spaces as a space.
std::string normalize_nmt(const std::string& text);

/// Precompiled: replaces by SentencePiece's map, where a short grapheme cluster that begins with a
/// key is replaced as a whole.
std::unique_ptr<Normalizer> make_precompiled(const JsonCursor& component);

}  // namespace megatron::hugging_face
