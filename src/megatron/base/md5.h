// MD5 (RFC 1321). It names the files of the index cache as Megatron Core does. Not for security.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// Returns the MD5 digest of `text` as 32 lower-case hexadecimal digits.
std::string md5_hex(std::string_view text);

}  // namespace megatron
