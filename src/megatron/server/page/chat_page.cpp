#include "megatron/server/page/chat_page.h"

#include <openssl/evp.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::string base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::string sha256(std::string_view text) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  MEGATRON_CHECK(
      EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), &size,
                 EVP_sha256(), nullptr) == 1,
      "SHA-256 failed");
  digest.resize(size);
  return digest;
}

/// Returns the source expression that allows the page's one element of this name.
std::string hash_source(std::string_view html, const std::string& tag) {
  const std::size_t begin = html.find("<" + tag + ">"), end = html.find("</" + tag + ">");
  MEGATRON_CHECK(begin != std::string_view::npos && end != std::string_view::npos,
                 "the page has no <", tag, "> without attributes");
  const std::size_t first = begin + tag.size() + 2;
  return "'sha256-" + base64(sha256(html.substr(first, end - first))) + "'";
}

}  // namespace

std::string content_security_policy(std::string_view html) {
  return "default-src 'none'; script-src " + hash_source(html, "script") + "; style-src " +
         hash_source(html, "style") +
         "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
         "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
}

std::vector<std::pair<std::string, std::string>> chat_page_headers() {
  return {{"Content-Security-Policy", content_security_policy(chat_page().html)},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cache-Control", "no-cache"}};
}

}  // namespace megatron
