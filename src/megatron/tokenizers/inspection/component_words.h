// Describes the stages of a tokenizer.json in words.
#pragma once

#include <string>

#include "megatron/base/json_fwd.h"

namespace megatron {

/// Return what a normalizer, pre-tokenizer, post-processor or decoder does, such as "GPT-2's
/// pattern, then bytes as characters". Null gives "none", and an unknown type its name.
std::string normalizer_words(const Json& component);
std::string pre_tokenizer_words(const Json& component);
std::string post_processor_words(const Json& component);
std::string decoder_words(const Json& component);

/// Returns the name of a published pattern, such as "GPT-2's pattern", or the pattern itself.
std::string pattern_words(const std::string& pattern);

}  // namespace megatron
