// Where a remote path lies. The input is the path, the variable AWS_ENDPOINT_URL, the profile and
// the file of credentials and settings, separated by NUL bytes.
#include "megatron/base/storage/object_location.h"

#include <algorithm>
#include <cctype>

#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {
namespace {

bool is_one_word(const std::string& text) {
  return std::ranges::none_of(text, [](unsigned char c) { return c <= ' ' || c == 127; });
}

}  // namespace

void parse_object_location(std::string_view input) {
  std::string path(take_part(input)), endpoint(take_part(input)), profile(take_part(input)),
      file = write_input("aws_settings", input);
  if (!is_remote_path(path)) return;
  const ObjectLocation location = locate_object(path, [&](const std::string& name) -> std::string {
    if (name == "AWS_ENDPOINT_URL") return {endpoint};
    if (name == "AWS_PROFILE") return {profile};
    if (name == "AWS_SHARED_CREDENTIALS_FILE" || name == "AWS_CONFIG_FILE") return {file};
    return {};
  });
  require(location.target.starts_with('/'), "the target is not a path");
  require(!location.host.empty(), "there is no host");
  for (const std::string& text : {location.origin, location.host, location.target})
    require(is_one_word(text), "a request line would hold " + text);
  require(location.cache_name().find("/../") == std::string::npos, "the cache is left");
  if (!location.s3) return;
  for (const std::string& text :
       {location.s3->access_key, location.s3->session_token, location.s3->region})
    require(text.find_first_of("\r\n") == std::string::npos, "a header would have two lines");
}

}  // namespace megatron::fuzz
