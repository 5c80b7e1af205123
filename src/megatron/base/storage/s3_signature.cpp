#include "megatron/base/storage/s3_signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

std::string sha256(const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  MEGATRON_CHECK(EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr),
                 "SHA-256 failed");
  return {reinterpret_cast<const char*>(digest.data()), size};
}

std::string hmac(const std::string& key, const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  MEGATRON_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                      reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                      digest.data(), &size) != nullptr,
                 "HMAC-SHA-256 failed");
  return {reinterpret_cast<const char*>(digest.data()), size};
}

std::string utc(std::time_t time, const char* format) {
  std::tm fields{};
  gmtime_r(&time, &fields);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &fields)};
}

}  // namespace

std::map<std::string, std::string> sign_s3_request(const S3Request& request,
                                                   const S3Credentials& credentials,
                                                   std::time_t time) {
  std::map<std::string, std::string> headers = {{"Host", request.host}};
  if (!request.range.empty()) headers["Range"] = request.range;
  if (credentials.access_key.empty()) return headers;
  const std::string date = utc(time, "%Y%m%d"), moment = utc(time, "%Y%m%dT%H%M%SZ");
  const std::string payload = hex_text(sha256(""));
  headers["x-amz-content-sha256"] = payload;
  headers["x-amz-date"] = moment;
  if (!credentials.session_token.empty())
    headers["x-amz-security-token"] = credentials.session_token;

  // The canonical headers are sorted by their names in lower case.
  std::map<std::string, std::string> sorted;
  for (const auto& [name, value] : headers) sorted[lower_case(name)] = value;
  std::string lines, names;
  for (const auto& [name, value] : sorted) {
    lines += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical =
      "GET\n" + request.path + "\n\n" + lines + "\n" + names + "\n" + payload;
  const std::string scope = date + "/" + credentials.region + "/s3/aws4_request";
  const std::string to_sign =
      "AWS4-HMAC-SHA256\n" + moment + "\n" + scope + "\n" + hex_text(sha256(canonical));
  const std::string key =
      hmac(hmac(hmac(hmac("AWS4" + credentials.secret_key, date), credentials.region), "s3"),
           "aws4_request");
  headers["Authorization"] = "AWS4-HMAC-SHA256 Credential=" + credentials.access_key + "/" + scope +
                             ",SignedHeaders=" + names +
                             ",Signature=" + hex_text(hmac(key, to_sign));
  return headers;
}

}  // namespace megatron
