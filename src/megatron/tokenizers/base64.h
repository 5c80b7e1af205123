// Decodes base64 (RFC 4648), in which vocabularies of byte strings are written.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// Appends the bytes of `text`, whose padding is required. Returns false when `text` is malformed;
/// `out` is then unspecified.
bool append_base64(std::string& out, std::string_view text);

}  // namespace megatron
