// Signs requests to S3 and compatible object stores: AWS Signature Version 4,
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
#pragma once

#include <ctime>
#include <map>
#include <string>

namespace megatron {

/// An empty access key means requests without a signature, which public buckets accept.
struct S3Credentials {
  std::string access_key = {}, secret_key = {}, session_token = {};
  std::string region = "us-east-1";
};

/// A GET request as the signature covers it.
struct S3Request {
  std::string host;   ///< with the port, if it is not the scheme's
  std::string path;   ///< percent-encoded
  std::string range;  ///< value of the Range header; empty: none
};

/// Returns the headers that authenticate the request at `time`, Host and Range included.
std::map<std::string, std::string> sign_s3_request(const S3Request& request,
                                                   const S3Credentials& credentials,
                                                   std::time_t time);

}  // namespace megatron
