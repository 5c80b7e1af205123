// Collects the files of a tokenizer under their names in a Hugging Face directory, so that
// checkpoints can carry them.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

struct TokenizerConfig;

/// Returns the names of tokenizer files in a Hugging Face directory.
std::span<const char* const> tokenizer_file_names();

/// The paths of GPT-2's two files.
struct Gpt2Files {
  std::filesystem::path vocab, merges;
};
/// Returns the paths that the flags give. Throws a UserError when one of them is missing.
Gpt2Files gpt2_files(const TokenizerConfig& config);

/// Where the chat template of a tokenizer stands.
struct ChatFiles {
  std::filesystem::path folder = {};  ///< the tokenizer's; "": there is none
  std::string choice = {};            ///< that of --chat-template; "": none
  /// A JSON file whose chat_template is the default in place of the folder's; "": there is none.
  std::filesystem::path metadata = {};

  /// Returns whether the flags give a template, so that the folder needs none.
  bool has_template() const { return !choice.empty() || !metadata.empty(); }
};

/// Returns the places that the flags give. Throws a UserError if the file of --tokenizer-metadata
/// is broken.
ChatFiles chat_files(const TokenizerConfig& config);

/// Returns whether the file of tokenizers of this --tokenizer-type is tokenizer.json.
bool reads_tokenizer_json(std::string_view type);

/// Returns name → content of the tokenizer's own files (tokenizer.json, or vocab.json and
/// merges.txt) and of the files beside them that define special tokens; a chosen chat template is
/// chat_template.jinja. The result is empty for tokenizers without files and when no tokenizer is
/// set. Throws a UserError when a file cannot be read.
std::map<std::string, std::string> tokenizer_files(const TokenizerConfig& config);

/// Returns every file that tokenizer and chat template may be read from: those that flags name, and
/// all that a tokenizer's folder may have, whether they exist or not. Reads none of them.
std::vector<std::filesystem::path> tokenizer_paths(const TokenizerConfig& config);

/// The name of ByteTokenizer's eod in byte_tokenizer_json().
inline constexpr const char* kByteTokenizerEod = "<|endoftext|>";

/// Returns a tokenizer.json that gives the same ids as ByteTokenizer.
std::string byte_tokenizer_json();

}  // namespace megatron
