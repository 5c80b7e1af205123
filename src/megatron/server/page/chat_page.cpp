#include "megatron/server/page/chat_page.h"

#include <openssl/evp.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Returns the source expression that allows the page's one element of this name.
std::string hash_source(std::string_view html, const std::string& tag) {
  const std::size_t begin = html.find("<" + tag + ">"), end = html.find("</" + tag + ">");
  MEGATRON_CHECK(begin != std::string_view::npos && end != std::string_view::npos,
                 "the page has no <", tag, "> without attributes");
  const std::string_view text = html.substr(0, end).substr(begin + tag.size() + 2);
  unsigned char digest[EVP_MAX_MD_SIZE], base64[2 * EVP_MAX_MD_SIZE];
  unsigned size = 0;
  MEGATRON_CHECK(EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr) == 1,
                 "SHA-256 failed");
  EVP_EncodeBlock(base64, digest, static_cast<int>(size));
  return "'sha256-" + std::string(reinterpret_cast<const char*>(base64)) + "'";
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
