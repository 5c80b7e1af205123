// GPT-2's alphabet: each byte as one printable character, so that BPE vocabularies over bytes are
// readable text (Radford et al., 2019).
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// Appends every byte of `text` as its character of the alphabet.
void append_byte_level(std::string& out, std::string_view text);

/// Appends the bytes that the characters of `token` stand for; when one of them is outside the
/// alphabet, `token` itself.
void append_decoded_byte_level(std::string& out, std::string_view token);

}  // namespace megatron
