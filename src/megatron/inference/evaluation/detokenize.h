// Undoes the tokenization of published texts.
#pragma once

#include <string>

namespace megatron {

/// Undoes the tokenization of a data set that is known by its path, as Megatron-LM does before it
/// scores the text.
std::string detokenized(const std::string& path, std::string text);

}  // namespace megatron
