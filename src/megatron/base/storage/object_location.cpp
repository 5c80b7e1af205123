#include "megatron/base/storage/object_location.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>

#include "megatron/base/error.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

/// Returns a value of a section of an INI file; "" if there is none.
std::string ini_value(const std::string& file, const std::string& section, const std::string& key) {
  std::ifstream stream(file);
  std::string line, current;
  while (std::getline(stream, line)) {
    line = trim(line);
    if (line.starts_with("[") && line.ends_with("]")) {
      current = trim(std::string_view(line).substr(1, line.size() - 2));
      continue;
    }
    const std::size_t equals = line.find('=');
    if (current == section && equals != std::string::npos && trim(line.substr(0, equals)) == key)
      return trim(line.substr(equals + 1));
  }
  return "";
}

std::string first_of(const std::string& a, const std::string& b) { return a.empty() ? b : a; }

S3Credentials credentials_of(const EnvironmentReader& environment) {
  const std::string folder = environment("HOME") + "/.aws/";
  const std::string profile = first_of(environment("AWS_PROFILE"), "default");
  const std::string config = first_of(environment("AWS_CONFIG_FILE"), folder + "config");
  const std::string section = profile == "default" ? profile : "profile " + profile;
  S3Credentials credentials{
      .access_key = environment("AWS_ACCESS_KEY_ID"),
      .secret_key = environment("AWS_SECRET_ACCESS_KEY"),
      .session_token = environment("AWS_SESSION_TOKEN"),
      .region = first_of(environment("AWS_REGION"), environment("AWS_DEFAULT_REGION"))};
  if (credentials.access_key.empty()) {
    const std::string file =
        first_of(environment("AWS_SHARED_CREDENTIALS_FILE"), folder + "credentials");
    credentials.access_key = ini_value(file, profile, "aws_access_key_id");
    credentials.secret_key = ini_value(file, profile, "aws_secret_access_key");
    credentials.session_token = ini_value(file, profile, "aws_session_token");
  }
  if (credentials.region.empty()) credentials.region = ini_value(config, section, "region");
  if (credentials.region.empty()) credentials.region = S3Credentials{}.region;
  return credentials;
}

/// Throws a UserError for a value that would end a line of the request. Values are secret, so the
/// message does not show them.
void check_credentials(const S3Credentials& credentials) {
  const auto check = [](const std::string& value, const std::string& key) {
    if (std::ranges::any_of(value, [](unsigned char c) { return std::iscntrl(c) != 0; }))
      throw UserError({"the S3 setting " + key + " holds a control character", "",
                       "correct the environment, or the file ~/.aws/credentials or ~/.aws/config"});
  };
  check(credentials.access_key, "aws_access_key_id");
  check(credentials.secret_key, "aws_secret_access_key");
  check(credentials.session_token, "aws_session_token");
  check(credentials.region, "region");
}

/// Percent-encodes everything but unreserved characters (RFC 3986, section 2.3) and slashes.
std::string encode_key(std::string_view key) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  std::string text;
  for (const char c : key) {
    const auto value = static_cast<unsigned char>(c);
    if (value < 128 &&
        (std::isalnum(value) != 0 || std::string_view("-._~/").find(c) != std::string::npos))
      text += c;
    else
      text += {'%', kDigits[value >> 4], kDigits[value & 15]};
  }
  return text;
}

/// Splits a URL into origin and target. A URL without a path has the target "/".
ObjectLocation parse_url(const std::string& url) {
  const std::size_t host = url.find("://") + 3;
  const std::size_t end = std::min(url.find_first_of("/?", host), url.size());
  ObjectLocation location{.name = url.substr(0, url.find('?')),
                          .origin = url.substr(0, end),
                          .host = url.substr(host, end - host),
                          .target = url.substr(end)};
  if (!location.target.starts_with("/")) location.target.insert(0, "/");
  const auto refuse = [&](const std::string& what) {
    throw UserError({what, location.name.substr(0, host) + "…", "write http://host/path"});
  };
  if (location.host.find('@') != std::string::npos) refuse("a URL must not contain a password");
  if (location.host.empty()) refuse("a URL needs a host");
  for (const char c : url)
    if (std::isspace(static_cast<unsigned char>(c)) != 0 ||
        std::iscntrl(static_cast<unsigned char>(c)) != 0)
      refuse("a URL must not contain spaces; write %20");
  return location;
}

}  // namespace

std::string read_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): it is never set
  return value == nullptr ? "" : value;
}

bool is_remote_path(std::string_view path) {
  return path.starts_with("s3://") || path.starts_with("http://") || path.starts_with("https://");
}

ObjectLocation locate_object(const std::string& path, const EnvironmentReader& environment) {
  MEGATRON_CHECK(is_remote_path(path), path, " is a local path");
  if ((path + "/").find("/../") != std::string::npos)
    throw UserError({"a remote path must not contain ..", path, "write the path without it"});
  if (!path.starts_with("s3://")) return parse_url(path);
  const std::size_t slash = path.find('/', 5);
  if (slash == std::string::npos || slash == 5 || slash + 1 == path.size())
    throw UserError({"an S3 path needs a bucket and a key", path, "write s3://bucket/path"});
  const std::string bucket = path.substr(5, slash - 5), key = encode_key(path.substr(slash));
  const S3Credentials credentials = credentials_of(environment);
  check_credentials(credentials);
  std::string endpoint =
      first_of(environment("AWS_ENDPOINT_URL_S3"), environment("AWS_ENDPOINT_URL"));
  std::string url;
  if (!endpoint.empty()) {
    if (!endpoint.starts_with("http://") && !endpoint.starts_with("https://"))
      throw UserError({"the variable AWS_ENDPOINT_URL must be a URL", endpoint,
                       "write for example http://127.0.0.1:9000"});
    while (endpoint.ends_with("/")) endpoint.pop_back();
    url = endpoint + "/" + bucket + key;
  } else if (bucket.find('.') == std::string::npos) {
    url = "https://" + bucket + ".s3." + credentials.region + ".amazonaws.com" + key;
  } else {  // the certificate does not cover names with more dots
    url = "https://s3." + credentials.region + ".amazonaws.com/" + bucket + key;
  }
  ObjectLocation location = parse_url(url);
  location.name = path;
  location.s3 = credentials;
  return location;
}

}  // namespace megatron
