// Loads the tokenizer of a checkpoint: the one it was trained with, or that of its Hugging Face
// folder, unless flags select another.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatron/config/sampling_params.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

struct CheckpointSource;
struct TokenizerFlags;

struct LoadedTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  TokenizerConfig config = {};  ///< its settings; chat_files() finds its chat template by them
  /// Tokens that end a text: the tokenizer's eod and, for a tokenizer stored with the checkpoint,
  /// eos_token_id of generation_config.json or config.json.
  std::vector<std::int64_t> stop_token_ids;
  /// Messages for stderr, such as that the tokenizer of the flags differs from the checkpoint's.
  std::vector<std::string> notes = {};
  SamplingParams defaults = {};  ///< of generation_config.json
  /// EngineOptions::decoder_start of a model with an encoder: decoder_start_token_id of
  /// generation_config.json or config.json, otherwise what training begins with, bos or padding; −1
  /// of other models.
  std::int64_t decoder_start = -1;
  /// Ends texts of an encoder whose tokenizer's file does not say that the model has learned so: −1
  /// elsewhere.
  std::int64_t encoder_end = -1;

  /// Returns whether an encoder reads prompts, which the texts of a decoder answer.
  bool has_encoder() const { return decoder_start >= 0; }
  /// Ends the ids of a whole text with encoder_end, if there is one and they do not end so.
  template <class Ids>
  void end_encoded(Ids& ids) const {
    if (encoder_end >= 0 && (ids.empty() || ids.back() != encoder_end))
      ids.push_back(static_cast<typename Ids::value_type>(encoder_end));
  }
};

/// Opens the tokenizer that `flags` name, or else the checkpoint's with the settings that they
/// change. UserError when there is none, or it has nothing for a decoder to begin with.
LoadedTokenizer load_tokenizer(const TokenizerFlags& flags, const CheckpointSource& source);

}  // namespace megatron
