// What decides the ids that a text becomes, as a text: work that continues compares it.
#pragma once

#include <string>

#include "megatron/base/files.h"

namespace megatron {

struct TokenizerConfig;

/// Returns a line with the path of a file, its size and its time. Both are 0 where there is none.
std::string file_identity(const fs::path& path);

/// Returns the flags of a tokenizer, one in a line. Throws like encoder_identity().
std::string encoder_flags(const TokenizerConfig& config);

/// Returns a text that identifies a tokenizer: its flags, and the file_identity() of their files.
/// Throws a UserError when the type of the tokenizer is unknown.
std::string encoder_identity(const TokenizerConfig& config);

}  // namespace megatron
