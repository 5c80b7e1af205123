// Finds the tokenizer that belongs to weights, and carries its files from a run to its checkpoint
// and to a Hugging Face directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/config/tokenizer_flags.h"

namespace megatron {

struct TokenizerConfig;

/// Returns the run's tokenizer that a native checkpoint stores. Its files are taken from `folder`
/// when the checkpoint carries them. The type is unset when neither is stored.
TokenizerConfig stored_tokenizer(const Manifest& manifest, const std::filesystem::path& folder);

/// Returns the tokenizer of a Hugging Face directory; the type is unset when it has no readable
/// files.
TokenizerConfig stored_tokenizer(const std::filesystem::path& hf_folder);

/// Returns whether `files` contains the files of a tokenizer.
bool has_tokenizer_files(const AuxiliaryFiles& files);

/// Returns whether two tokenizers have the same vocabulary. It compares the files that both have:
/// tokenizer.json, GPT-2's pair or tokenizer.model. Returns nullopt when they have none in common.
std::optional<bool> same_vocabulary(const AuxiliaryFiles& left, const AuxiliaryFiles& right);

/// Returns tokenizer_files(config); for ByteTokenizer, an equivalent tokenizer.json.
AuxiliaryFiles hf_tokenizer_files(const TokenizerConfig& config);

/// Adds a tokenizer's files to those that a checkpoint carries. When they replace another
/// vocabulary, it removes the ids of bos, eos and pad from config.json and generation_config.json,
/// because these belong to the old vocabulary.
void replace_tokenizer_files(const AuxiliaryFiles& tokenizer, AuxiliaryFiles& files);

/// Returns the tokenizer of a checkpoint with the settings that the flags give, for flags that name
/// no tokenizer of their own. Sizes of the vocabulary stay.
TokenizerConfig with_tokenizer_flags(TokenizerConfig stored, const TokenizerFlags& flags);

/// Returns the settings of `config` as a manifest stores them.
Json tokenizer_to_json(const TokenizerConfig& config);

/// Ids of the begin, end and padding tokens in config.json; nullopt where unknown.
struct TokenIds {
  std::optional<std::int64_t> bos, eos, pad;
  std::optional<std::int64_t> decoder_start;  ///< begins the texts of a decoder with an encoder
};

/// The tokenizer data of an exported Hugging Face directory.
struct TokenizerExport {
  TokenIds ids = {};
  std::vector<std::string> notes = {};  ///< what could not be exported, and why
};

/// The ids of a model that its BERT tokenizer adds to those of vocab.txt.
struct AddedIds {
  std::int64_t num_rows = 0;       ///< of the embedding; 0: the file has all ids
  std::int64_t num_sentinels = 0;  ///< --vocab-extra-ids of T5, behind [BOS] and [EOS]
};

/// Completes `files` for a Hugging Face directory with the tokenizer `config`. It adds missing
/// tokenizer files, what vocab.txt lacks of the ids, and a tokenizer_config.json with the special
/// tokens; a ByteTokenizer replaces any other tokenizer by its tokenizer.json. What cannot be
/// written becomes a note.
TokenizerExport export_tokenizer(TokenizerConfig config, AuxiliaryFiles& files,
                                 const AddedIds& model = {});

}  // namespace megatron
