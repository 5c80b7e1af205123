#include "megatron/base/storage/http_range_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "support/message_of.h"
#include "support/object_server.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Returns `size` bytes that differ from their neighbors at every small distance.
std::string pattern(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 131 + i / 251);
  return text;
}

constexpr RetryOptions kFast = {.attempts = 3, .first_delay_s = 0.001, .timeout_s = 5};

class HttpRangeReaderTest : public ::testing::Test {
 protected:
  HttpRangeReaderTest() { server_.put("data.bin", content_); }

  HttpRangeReader open(const RetryOptions& retries = kFast) const {
    return HttpRangeReader(locate_object(server_.url("data.bin")), retries);
  }
  static std::string read(const RangeReader& reader, std::uint64_t offset, std::size_t size) {
    std::string bytes(size, '?');
    reader.read(offset, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  const std::string content_ = pattern(500'000);
  ObjectServer server_;
};

TEST_F(HttpRangeReaderTest, ReadsRanges) {
  const HttpRangeReader reader = open();
  EXPECT_EQ(reader.size(), content_.size());
  EXPECT_EQ(reader.version(), "\"v1\"");
  EXPECT_EQ(reader.name(), server_.url("data.bin"));
  server_.take_ranges();
  EXPECT_EQ(read(reader, 1000, 3), content_.substr(1000, 3));
  EXPECT_EQ(read(reader, 499'990, 10), content_.substr(499'990));
  EXPECT_EQ(read(reader, 7, 0), "");
  EXPECT_THAT(server_.take_ranges(), ElementsAre("1000-1002", "499990-499999"));
}

TEST_F(HttpRangeReaderTest, ReadsInSeveralThreads) {
  const HttpRangeReader reader = open();
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (std::size_t i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (std::size_t k = 0; k < 10; ++k)
        right += read(reader, i * 50'000 + k, 40'000) == content_.substr(i * 50'000 + k, 40'000);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
}

TEST_F(HttpRangeReaderTest, OpensAnEmptyObject) {
  server_.put("empty", "");
  const HttpRangeReader reader(locate_object(server_.url("empty")), kFast);
  EXPECT_EQ(reader.size(), 0u);
}

TEST_F(HttpRangeReaderTest, GoesOnWhereAConnectionWasLost) {
  const HttpRangeReader reader = open();
  server_.take_ranges();
  server_.set_fault([](int number, const ServerRequest&, ServerAnswer& answer) {
    if (number % 3 != 0) answer.drop_after = 100'000;
  });
  EXPECT_EQ(read(reader, 10, 400'000), content_.substr(10, 400'000));
  EXPECT_THAT(server_.take_ranges(), ElementsAre("10-400009", "100010-400009", "200010-400009"));
}

TEST_F(HttpRangeReaderTest, RepeatsWhenTheServerIsOverloaded) {
  const HttpRangeReader reader = open();
  server_.set_fault([](int number, const ServerRequest&, ServerAnswer& answer) {
    if (number == 1) answer.status = "503 Slow Down";
    if (number == 2) answer.status = "429 Too Many Requests";
  });
  EXPECT_EQ(read(reader, 5, 20), content_.substr(5, 20));
  EXPECT_EQ(server_.requests().size(), 4u);
}

TEST_F(HttpRangeReaderTest, GivesUpAfterItsAttempts) {
  const HttpRangeReader reader = open();
  server_.set_fault([](int, const ServerRequest&, ServerAnswer& answer) {
    answer.status = "500 Internal Server Error";
  });
  EXPECT_THAT(message_of([&] { read(reader, 0, 9); }),
              AllOf(HasSubstr("cannot read " + server_.url("data.bin")),
                    HasSubstr("HTTP status 500, 3 times")));
  EXPECT_EQ(server_.requests().size(), 4u);
}

TEST_F(HttpRangeReaderTest, RepeatsAfterASlowAnswer) {
  const HttpRangeReader reader = open({.attempts = 3, .first_delay_s = 0.001, .timeout_s = 0.2});
  server_.set_fault([](int number, const ServerRequest&, ServerAnswer& answer) {
    if (number == 1) answer.delay = std::chrono::milliseconds(600);
  });
  EXPECT_EQ(read(reader, 5, 20), content_.substr(5, 20));
  EXPECT_EQ(server_.requests().size(), 3u);
}

TEST_F(HttpRangeReaderTest, NoticesAnAnswerThatIsTooShort) {
  const HttpRangeReader reader = open();
  server_.set_fault([](int, const ServerRequest& request, ServerAnswer& answer) {
    if (request.last - request.first > 10) answer.body.resize(10);
  });
  EXPECT_EQ(read(reader, 0, 25), content_.substr(0, 25)) << "10 bytes, 10 bytes and 5 bytes";
  server_.set_fault([](int, const ServerRequest&, ServerAnswer& answer) { answer.body.clear(); });
  EXPECT_THAT(message_of([&] { read(reader, 0, 9); }),
              HasSubstr("the answer ended after 0 of 9 bytes, 3 times"));
}

TEST_F(HttpRangeReaderTest, DoesNotTakeMoreThanItAskedFor) {
  const HttpRangeReader reader = open();
  server_.set_fault(
      [](int, const ServerRequest&, ServerAnswer& answer) { answer.body += "too much"; });
  std::string bytes = "0123456789";
  try {
    reader.read(0, std::as_writable_bytes(std::span(bytes).first(4)));
  } catch (const UserError&) {  // either outcome is right
  }
  EXPECT_EQ(bytes.substr(4), "456789");
}

TEST_F(HttpRangeReaderTest, RefusesAnotherRange) {
  const HttpRangeReader reader = open();
  server_.set_fault([](int, const ServerRequest&, ServerAnswer& answer) {
    answer.headers["Content-Range"] = "bytes 1-9/500000";
  });
  EXPECT_THAT(message_of([&] { read(reader, 0, 9); }),
              HasSubstr("its server answered with another range"));
}

TEST_F(HttpRangeReaderTest, RefusesAServerWithoutRanges) {
  server_.set_fault([](int, const ServerRequest&, ServerAnswer& answer) {
    answer.status = "200 OK";
    answer.headers.erase("Content-Range");
  });
  EXPECT_THAT(message_of([&] { open(); }), HasSubstr("its server does not serve ranges of bytes"));
}

TEST_F(HttpRangeReaderTest, NoticesAReplacedObject) {
  const HttpRangeReader reader = open();
  std::string other = content_;
  other[0] = 'x';
  server_.put("data.bin", other, "\"v2\"");
  EXPECT_THAT(message_of([&] { read(reader, 0, 9); }),
              HasSubstr("it was replaced while it was read"));
  server_.put("data.bin", content_ + "more", "\"v1\"");
  EXPECT_THAT(message_of([&] { read(reader, 0, 9); }),
              HasSubstr("it was replaced while it was read"));
  server_.put("data.bin", "short", "\"v1\"");
  EXPECT_THAT(message_of([&] { read(reader, 100, 9); }),
              HasSubstr("it was replaced while it was read"));
}

TEST_F(HttpRangeReaderTest, TellsWhyAnObjectCannotBeRead) {
  EXPECT_THAT(
      message_of([&] { HttpRangeReader(locate_object(server_.url("none?token=secret")), kFast); }),
      AllOf(HasSubstr(server_.url("none") + ": it does not exist (HTTP status 404)"),
            ::testing::Not(HasSubstr("secret"))));
  server_.set_fault(
      [](int, const ServerRequest&, ServerAnswer& answer) { answer.status = "403 Forbidden"; });
  EXPECT_THAT(message_of([&] { open(); }), HasSubstr("access is denied (HTTP status 403)"));
  EXPECT_EQ(server_.requests().size(), 2u) << "such answers are not asked for again";
}

TEST_F(HttpRangeReaderTest, TellsThatNobodyListens) {
  std::string nobody;
  {
    const ObjectServer gone;
    nobody = gone.url("data.bin");
  }
  EXPECT_THAT(message_of([&] { HttpRangeReader(locate_object(nobody), kFast); }),
              AllOf(HasSubstr("cannot read " + nobody + ": no answer"), HasSubstr("3 times")));
}

TEST_F(HttpRangeReaderTest, FollowsRedirections) {
  server_.put("moved", "");
  server_.set_fault([](int, const ServerRequest& request, ServerAnswer& answer) {
    if (request.target != "/moved") return;
    answer.status = "302 Found";
    answer.headers["Location"] = "/data.bin";
  });
  const HttpRangeReader reader(locate_object(server_.url("moved")), kFast);
  EXPECT_EQ(read(reader, 5, 20), content_.substr(5, 20));
}

TEST_F(HttpRangeReaderTest, SignsRequestsToAnObjectStore) {
  server_.put("bucket/a folder/data.bin", content_);
  server_.put("bucket/a%20folder/data.bin", content_);
  const std::map<std::string, std::string> variables = {{"AWS_ENDPOINT_URL", server_.origin()},
                                                        {"AWS_ACCESS_KEY_ID", "key"},
                                                        {"AWS_SECRET_ACCESS_KEY", "secret"},
                                                        {"AWS_REGION", "eu-north-1"}};
  const HttpRangeReader reader(locate_object("s3://bucket/a folder/data.bin",
                                             [&](const std::string& name) {
                                               const auto found = variables.find(name);
                                               return found == variables.end() ? "" : found->second;
                                             }),
                               kFast);
  EXPECT_EQ(read(reader, 5, 20), content_.substr(5, 20));
  const ServerRequest request = server_.requests().back();
  EXPECT_EQ(request.target, "/bucket/a%20folder/data.bin");
  EXPECT_EQ("http://" + request.headers.at("host"), server_.origin());
  EXPECT_THAT(
      request.headers.at("authorization"),
      AllOf(HasSubstr("AWS4-HMAC-SHA256 Credential=key/"), HasSubstr("/eu-north-1/s3/aws4_request"),
            HasSubstr("SignedHeaders=host;range;x-amz-content-sha256;x-amz-date")));
}

}  // namespace
}  // namespace megatron
