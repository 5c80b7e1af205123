// Says where a remote path lies and how it is asked for: http://, https:// and s3:// paths.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "megatron/base/storage/s3_signature.h"

namespace megatron {

/// Returns the value of an environment variable; "" if it is not set.
using EnvironmentReader = std::function<std::string(const std::string& name)>;
/// Reads the environment of this process.
std::string read_environment(const std::string& name);

/// Returns whether the path begins with s3://, http:// or https://.
bool is_remote_path(std::string_view path);

/// An object as an HTTP client asks for it.
struct ObjectLocation {
  std::string name;                      ///< the path without a query, for messages and the cache
  std::string origin;                    ///< scheme, host and port
  std::string host;                      ///< host and port, as the Host header has them
  std::string target;                    ///< percent-encoded path, with the query
  std::optional<S3Credentials> s3 = {};  ///< of s3:// paths

  /// Returns the path below a cache folder: `name` without the scheme.
  std::string cache_name() const { return name.substr(name.find("://") + 3); }
};

/// Parses a remote path. For s3:// paths the variables that boto3 reads count: AWS_ENDPOINT_URL_S3
/// or AWS_ENDPOINT_URL (MinIO and others; the bucket is then part of the path), AWS_ACCESS_KEY_ID,
/// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION, AWS_PROFILE,
/// AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE (~/.aws/credentials and ~/.aws/config). Throws a
/// UserError for a path that is not valid.
ObjectLocation locate_object(const std::string& path,
                             const EnvironmentReader& environment = read_environment);

}  // namespace megatron
