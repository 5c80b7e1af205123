// Recognizes which kind of tokenizer a file or folder holds.
#pragma once

#include <filesystem>
#include <string_view>

namespace megatron {

/// Returns the --tokenizer-type of a file. Throws a UserError when the file is of no known kind.
std::string_view recognize_tokenizer_file(const std::filesystem::path& path);

/// Returns whether a tokenizer of the type reads a SentencePiece model.
bool reads_sentencepiece(std::string_view type);

/// Returns the file of `folder` that holds its tokenizer; for GPT2BPETokenizer, the folder itself.
/// A folder with several files gives the one that a tokenizer of `type` reads; the type "" reads
/// any. Throws a UserError when there is none.
std::filesystem::path tokenizer_file_in(const std::filesystem::path& folder,
                                        std::string_view type = "");

/// Throws a UserError when `path` is a file that begins like one of another type than `type`.
void check_tokenizer_file(const std::filesystem::path& path, std::string_view type);

}  // namespace megatron
