// A bound for what the components of tokenizer.json make of a text.
#pragma once

#include <cstddef>

namespace megatron::hugging_face {

/// Throws a UserError when components make `size` bytes of `original` bytes and that is more than a
/// hundred times as long. Each component of a chain can multiply a text, so a small file could fill
/// any memory. Short texts may grow to 64 KiB.
void check_growth(std::size_t original, std::size_t size);

}  // namespace megatron::hugging_face
