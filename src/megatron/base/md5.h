// MD5 (RFC 1321): names index caches the way megatron-core does. Not for security.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// The MD5 digest of `text` as 32 lower-case hexadecimal digits.
std::string md5_hex(std::string_view text);

}  // namespace megatron
