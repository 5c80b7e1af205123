#include "megatron/base/md5.h"

#include <openssl/evp.h>

#include <array>

#include "megatron/base/error.h"

namespace megatron {

std::string md5_hex(std::string_view text) {
  std::array<unsigned char, 16> digest;
  MEGATRON_CHECK(
      EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_md5(), nullptr) == 1,
      "libcrypto refuses MD5, as in its FIPS mode");
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

}  // namespace megatron
