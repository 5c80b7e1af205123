// The patterns and special tokens that belong to published tiktoken vocabularies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/tokenizers/tiktoken/vocabulary_file.h"

namespace megatron::tiktoken {

/// Returns the pattern with this name, or `name` itself when it is a regular expression. Throws a
/// UserError for a word that names no pattern.
std::string pattern_named(const std::string& name);

/// Completes a file that holds ranks alone: `name` is the value of --tiktoken-pattern, and "" asks
/// for the published vocabulary of this size. Throws a UserError when there is none.
void add_published_parts(VocabularyFile& file, const std::string& name, const std::string& source);

}  // namespace megatron::tiktoken
