// The tokenizer that belongs to weights: which one it is, and its files on their way from run to
// checkpoint to Hugging Face folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/manifest.h"

namespace megatron {

/// The tokenizer of one of our checkpoint folders: that of the run, with its files taken from the
/// folder when it carries them. Names none when neither is stored.
TokenizerConfig stored_tokenizer(const Manifest& manifest, const std::filesystem::path& folder);

/// The tokenizer of a Hugging Face folder; names none when it has no files that can be read here.
TokenizerConfig stored_tokenizer(const std::filesystem::path& hf_folder);

/// Whether the files of a tokenizer are among `files`.
bool has_tokenizer_files(const AuxiliaryFiles& files);

/// Whether two tokenizers have one vocabulary, by the content of the files that both have:
/// tokenizer.json, GPT-2's pair or tokenizer.model. Nothing when they share none.
std::optional<bool> same_vocabulary(const AuxiliaryFiles& left, const AuxiliaryFiles& right);

/// tokenizer_files(config), and for ByteTokenizer the tokenizer.json that equals it.
AuxiliaryFiles hf_tokenizer_files(const TokenizerConfig& config);

/// Puts a tokenizer's files among those that a checkpoint carries. When they replace another
/// vocabulary, the ids of bos, eos and pad in config.json and generation_config.json go: they
/// belonged to that one.
void replace_tokenizer_files(const AuxiliaryFiles& tokenizer, AuxiliaryFiles& files);

/// The settings of `config` as a manifest stores them.
Json tokenizer_to_json(const TokenizerConfig& config);

/// config.json's ids of the tokens that begin, end and pad a text; nothing where unknown.
struct TokenIds {
  std::optional<std::int64_t> bos, eos, pad;
};

/// What a Hugging Face folder says about its tokenizer.
struct TokenizerExport {
  TokenIds ids = {};
  std::vector<std::string> notes = {};  ///< what is missing there, and why
};

/// Completes `files` for a Hugging Face folder whose tokenizer is `config`: its files where there
/// are none, ByteTokenizer as a tokenizer.json in place of any other tokenizer, and a
/// tokenizer_config.json that names the special tokens. What is not possible becomes a note.
TokenizerExport export_tokenizer(const TokenizerConfig& config, AuxiliaryFiles& files);

}  // namespace megatron
