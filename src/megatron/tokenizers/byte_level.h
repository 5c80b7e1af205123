// GPT-2's byte alphabet (Radford et al., 2019), which writes each byte as one printable character.
// BPE vocabularies over bytes are then readable text.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// Appends the character of every byte of `text`.
void append_byte_level(std::string& out, std::string_view text);

/// Appends the bytes of the characters of `token`, or `token` itself when one of its characters is
/// outside the alphabet.
void append_decoded_byte_level(std::string& out, std::string_view token);

}  // namespace megatron
