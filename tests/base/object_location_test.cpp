#include "megatron/base/storage/object_location.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

EnvironmentReader variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string() : found->second;
  };
}

// The example "GET Object" of the documentation of Signature Version 4.
TEST(S3Signature, EqualsThePublishedExample) {
  const S3Credentials credentials{.access_key = "AKIAIOSFODNN7EXAMPLE",
                                  .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                  .region = "us-east-1"};
  const auto headers = sign_s3_request(
      {.host = "examplebucket.s3.amazonaws.com", .path = "/test.txt", .range = "bytes=0-9"},
      credentials, 1369353600);  // 2013-05-24T00:00:00Z
  EXPECT_EQ(headers.at("x-amz-date"), "20130524T000000Z");
  EXPECT_EQ(headers.at("Authorization"),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(S3Signature, SignsNothingWithoutAKey) {
  const auto headers = sign_s3_request({.host = "h", .path = "/p", .range = "bytes=0-9"}, {}, 0);
  EXPECT_EQ(headers, (std::map<std::string, std::string>{{"Host", "h"}, {"Range", "bytes=0-9"}}));
}

TEST(ObjectLocation, KnowsRemotePaths) {
  EXPECT_TRUE(is_remote_path("s3://b/k"));
  EXPECT_TRUE(is_remote_path("https://h/p"));
  EXPECT_FALSE(is_remote_path("/data/s3://b"));
  EXPECT_FALSE(is_remote_path("s3"));
}

TEST(ObjectLocation, SplitsUrls) {
  const ObjectLocation location = locate_object("https://host:8443/a/b.bin?sig=1", variables({}));
  EXPECT_EQ(location.origin, "https://host:8443");
  EXPECT_EQ(location.host, "host:8443");
  EXPECT_EQ(location.target, "/a/b.bin?sig=1");
  EXPECT_EQ(location.name, "https://host:8443/a/b.bin");
  EXPECT_EQ(location.cache_name(), "host:8443/a/b.bin");
  EXPECT_FALSE(location.s3);
}

TEST(ObjectLocation, FindsBuckets) {
  const ObjectLocation amazon =
      locate_object("s3://bucket/a b/c+d.bin", variables({{"AWS_DEFAULT_REGION", "eu-west-1"}}));
  EXPECT_EQ(amazon.origin, "https://bucket.s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(amazon.target, "/a%20b/c%2Bd.bin");
  EXPECT_EQ(amazon.cache_name(), "bucket/a b/c+d.bin");
  EXPECT_EQ(amazon.s3->region, "eu-west-1");
  EXPECT_EQ(amazon.s3->access_key, "");

  const ObjectLocation dotted = locate_object("s3://my.bucket/k", variables({}));
  EXPECT_EQ(dotted.origin + dotted.target, "https://s3.us-east-1.amazonaws.com/my.bucket/k");

  const ObjectLocation minio =
      locate_object("s3://bucket/k", variables({{"AWS_ENDPOINT_URL", "http://minio:9000/"}}));
  EXPECT_EQ(minio.origin + minio.target, "http://minio:9000/bucket/k");
}

TEST(ObjectLocation, ReadsTheFilesOfAProfile) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / ".aws");
  folder.write(".aws/credentials",
               "[default]\naws_access_key_id = wrong\n[team]\naws_access_key_id = id\n"
               "aws_secret_access_key=secret\naws_session_token = token\n");
  folder.write(".aws/config", "[profile team]\nregion = ap-south-1\n");
  const ObjectLocation location = locate_object(
      "s3://bucket/k", variables({{"HOME", folder.path().string()}, {"AWS_PROFILE", "team"}}));
  EXPECT_EQ(location.s3->access_key, "id");
  EXPECT_EQ(location.s3->secret_key, "secret");
  EXPECT_EQ(location.s3->session_token, "token");
  EXPECT_EQ(location.s3->region, "ap-south-1");
}

TEST(ObjectLocation, RefusesPathsThatAreNotValid) {
  const auto message = [](const std::string& path) {
    return message_of([&] { locate_object(path, variables({})); });
  };
  EXPECT_THAT(message("s3://bucket"), HasSubstr("an S3 path needs a bucket and a key"));
  EXPECT_THAT(message("s3:///key"), HasSubstr("an S3 path needs a bucket and a key"));
  EXPECT_THAT(message("http:///path"), HasSubstr("a URL needs a host"));
  EXPECT_THAT(message("http://user:secret@host/x"),
              ::testing::AllOf(HasSubstr("must not contain a password"),
                               ::testing::Not(HasSubstr("secret"))));
  EXPECT_THAT(message("http://host/a\r\nX: y"), HasSubstr("must not contain spaces"));
  EXPECT_THAT(message("s3://bucket/../../etc/x"), HasSubstr("must not contain .."));
}

// A carriage return would end the line of the header that holds the key.
TEST(ObjectLocation, RefusesCredentialsThatAreNoHeader) {
  for (const char* name :
       {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"}) {
    std::map<std::string, std::string> values = {{"AWS_ACCESS_KEY_ID", "id"}};
    values[name] = "hid\rden";
    const std::string message =
        message_of([&] { locate_object("s3://bucket/key", variables(values)); });
    EXPECT_THAT(message, HasSubstr("holds a control character")) << name;
    EXPECT_THAT(message, ::testing::Not(HasSubstr("hid"))) << name;
  }
}

}  // namespace
}  // namespace megatron
