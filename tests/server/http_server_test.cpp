#include "megatron/server/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "megatron/base/error.h"
#include "server/raw_client.h"

namespace megatron {
namespace {

using testing::HasSubstr;

/// Answers /echo at once, and keeps the replies to other paths.
class Echo {
 public:
  explicit Echo(const HttpOptions& options = {})
      : server_(options, [this](const HttpRequest& request, HttpReply reply) {
          if (request.is_too_large) return reply.send(413, "large");
          if (request.path == "/throw") throw std::runtime_error("a handler fails");
          if (request.path == "/forget") return;
          if (request.path == "/echo")
            return reply.send(200, request.method + " " + request.body, "text/plain");
          reply.on_disconnect([this] { ++num_gone; });
          reply.on_done([this](const ReplyRecord& record) {
            const std::lock_guard lock(mutex_);
            records_.push_back(record);
          });
          const std::lock_guard lock(mutex_);
          replies_.push_back(std::move(reply));
        }) {}

  HttpServer& server() { return server_; }
  std::int64_t port() const { return server_.port(); }
  HttpReply take() {
    EXPECT_TRUE(eventually([&] { return num_waiting() > 0; }));
    const std::lock_guard lock(mutex_);
    HttpReply reply = replies_.at(0);
    replies_.pop_front();
    return reply;
  }
  std::size_t num_waiting() const {
    const std::lock_guard lock(mutex_);
    return replies_.size();
  }
  std::vector<ReplyRecord> records() const {
    const std::lock_guard lock(mutex_);
    return records_;
  }

  std::atomic<int> num_gone = 0;

 private:
  mutable std::mutex mutex_;
  std::deque<HttpReply> replies_;
  std::vector<ReplyRecord> records_;
  HttpServer server_;  ///< last, so that no handler runs without the others
};

TEST(HttpServer, AnswersAtOnceLaterAndOnOneConnection) {
  Echo echo;
  RawClient client(echo.port());
  client.send(post("/echo", "one"));
  EXPECT_EQ(client.answer().body, "POST one");
  client.send(get("/later"));
  HttpReply reply = echo.take();
  EXPECT_FALSE(client.read_until("HTTP", 0.05));
  reply.send(201, "two", "text/plain", {{"X-Number", "2"}});
  reply.send(500, "a second answer is dropped");
  RawAnswer answer = client.answer();
  EXPECT_EQ(answer.status, 201);
  EXPECT_EQ(answer.body, "two");
  EXPECT_EQ(answer.headers["x-number"], "2");
  EXPECT_EQ(answer.headers["content-type"], "text/plain");
  client.send(get("/echo", "", "HEAD"));
  answer = client.answer(/*has_body=*/false);
  EXPECT_EQ(answer.headers["content-length"], "5");
  client.send(get("/echo"));
  EXPECT_EQ(client.answer().body, "GET ");
  ASSERT_TRUE(eventually([&] { return echo.records().size() == 1; }));
  EXPECT_EQ(echo.records()[0].status, 201);
  EXPECT_FALSE(echo.records()[0].is_cut);
  EXPECT_EQ(echo.num_gone, 0);
}

TEST(HttpServer, StreamsWhatOtherThreadsWrite) {
  Echo echo;
  RawClient client(echo.port());
  client.send(post("/later", "{}"));
  HttpReply reply = echo.take();
  reply.begin_stream("text/event-stream");
  reply.write("data: 1\n\n");
  EXPECT_TRUE(client.read_until("data: 1\n\n")) << "it is not sent before the end";
  std::string expected = "data: 1\n\n";
  std::thread writer([&] {
    for (int i = 2; i <= 2000; ++i) {
      const std::string event = "data: " + std::to_string(i) + "\n\n";
      expected += event;
      reply.write(event);
    }
    reply.end();
    reply.write("dropped");
  });
  const RawAnswer answer = client.answer();
  writer.join();
  EXPECT_TRUE(answer.is_whole);
  EXPECT_EQ(answer.body, expected);
  client.send(get("/echo"));
  EXPECT_EQ(client.answer().status, 200) << "the connection goes on";
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  Echo echo;
  RawClient client(echo.port());
  std::string all;
  for (int i = 0; i < 20; ++i) all += post("/echo", std::to_string(i));
  client.send(all);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.answer().body, "POST " + std::to_string(i));
  client.send(get("/later") + get("/echo"));
  HttpReply first = echo.take();
  EXPECT_FALSE(client.read_until("HTTP", 0.05)) << "the second is answered before the first";
  first.send(200, "first");
  EXPECT_EQ(client.answer().body, "first");
  EXPECT_EQ(client.answer().body, "GET ");
}

TEST(HttpServer, TakesBodiesInPiecesAndChunks) {
  Echo echo;
  RawClient client(echo.port());
  const std::string whole = post("/echo", "abcdef");
  for (const char c : whole) client.send({&c, 1});
  EXPECT_EQ(client.answer().body, "POST abcdef");
  client.send(
      "POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  client.send("2;x=y\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.answer().body, "POST abcde");
}

TEST(HttpServer, NoticesClientsThatGoWhileTheyWait) {
  Echo echo;
  RawClient waiting(echo.port()), streaming(echo.port());
  waiting.send(get("/later"));
  HttpReply one = echo.take();
  streaming.send(get("/later"));
  HttpReply two = echo.take();
  two.begin_stream("text/plain");
  two.write("x");
  EXPECT_TRUE(streaming.read_until("x\r\n"));
  EXPECT_TRUE(one.is_connected());
  waiting.close();
  EXPECT_TRUE(eventually([&] { return echo.num_gone == 1; }));
  streaming.close();
  EXPECT_TRUE(eventually([&] { return echo.num_gone == 2; }));
  EXPECT_FALSE(one.is_connected());
  one.send(200, "nobody reads it");
  two.write("nor this");
  two.end();
  ASSERT_TRUE(eventually([&] { return echo.server().num_open() == 0; }));
  std::multiset<int> statuses;
  for (const ReplyRecord& record : echo.records()) {
    statuses.insert(record.status);
    EXPECT_TRUE(record.is_cut);
  }
  EXPECT_EQ(statuses, (std::multiset<int>{200, 499}));
  bool is_told = false;
  one.on_disconnect([&] { is_told = true; });
  EXPECT_TRUE(is_told) << "a client that is gone is told at once";
}

TEST(HttpServer, RefusesLargeBodiesWhileTheyArrive) {
  Echo echo({.max_body_bytes = 1000});
  RawClient declared(echo.port()), chunked(echo.port()), asking(echo.port());
  declared.send("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\nabc");
  EXPECT_EQ(declared.answer().status, 413) << "it waits for the body";
  chunked.send("POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string kilobyte = "400\r\n" + std::string(1024, 'x') + "\r\n";
  chunked.send(kilobyte);
  RawAnswer answer = chunked.answer();
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.body, "large");
  EXPECT_EQ(answer.headers["connection"], "close");
  for (int i = 0; i < 100 && chunked.send(kilobyte);) ++i;
  EXPECT_TRUE(chunked.reads_end()) << "it takes bytes without end";
  asking.send(
      "POST /echo HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n");
  EXPECT_EQ(asking.answer().status, 413);
  EXPECT_TRUE(eventually([&] {
    declared.close();
    return echo.server().num_open() == 0;
  }));
}

TEST(HttpServer, RefusesWhatIsNoRequest) {
  Echo echo;
  const auto status = [&](const std::string& text) {
    RawClient client(echo.port());
    client.send(text);
    client.shut_sending();
    const int status = client.answer().status;
    EXPECT_TRUE(client.reads_end()) << text.substr(0, 50);
    return status;
  };
  EXPECT_EQ(status("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: ten\r\n\r\n"), 400);
  EXPECT_EQ(status("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(status("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
            400);
  EXPECT_EQ(status("GET /echo HTTP/1.1\r\n\r\n"), 400) << "without a host";
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  EXPECT_EQ(status(post("/echo", "0\r\n\r\n", chunked)), 400) << "two lengths";
  EXPECT_EQ(status(post("/echo", "", "Transfer-Encoding: gzip\r\n")), 400);
  RawClient unclear(echo.port());
  unclear.send(post("/echo", "0\r\n\r\n", chunked));
  EXPECT_THAT(unclear.answer().body, HasSubstr(R"({"error":{"message":"the length of the body)"));
  // The end of the connection may pass the answer.
  const auto is_refused = testing::AnyOf(0, testing::Ge(400));
  EXPECT_THAT(status(get("/echo", "X-Large: " + std::string(100'000, 'x') + "\r\n")), is_refused);
  EXPECT_THAT(status("GET /" + std::string(100'000, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n"),
              is_refused);
  EXPECT_EQ(echo.server().num_open(), 0u);
  RawClient client(echo.port());
  client.send(get("/throw"));
  EXPECT_EQ(client.answer().status, 500);
  client.send(get("/forget"));
  EXPECT_EQ(client.answer().status, 500) << "a reply that nobody keeps";
  client.send(get("/echo"));
  EXPECT_EQ(client.answer().status, 200);
}

TEST(HttpServer, EndsAStreamThatIsGivenUpWithoutItsLastChunk) {
  Echo echo;
  RawClient client(echo.port());
  client.send(get("/later"));
  {
    HttpReply reply = echo.take();
    reply.begin_stream("text/plain");
    reply.write("part");
    EXPECT_TRUE(client.read_until("part"));
  }
  const RawAnswer answer = client.answer();
  EXPECT_FALSE(answer.is_whole);
  EXPECT_TRUE(client.reads_end());
}

TEST(HttpServer, DisconnectsReadersThatAreTooSlow) {
  Echo echo({.max_unread_bytes = 100'000, .slow_reader_s = 0.2});
  RawClient slow(echo.port(), /*receive_buffer=*/4096), other(echo.port());
  slow.send(get("/later"));
  HttpReply reply = echo.take();
  reply.begin_stream("text/plain");
  EXPECT_TRUE(eventually([&] {
    reply.write(std::string(50'000, 'x'));
    return !reply.is_connected();
  }));
  EXPECT_EQ(echo.num_gone, 1);
  other.send(get("/echo"));
  EXPECT_EQ(other.answer().status, 200) << "others wait for it";
  EXPECT_TRUE(eventually([&] { return echo.server().num_open() == 0; })) << "before the timeout";
}

TEST(HttpServer, SendsEventsOfAnySizeToThoseWhoRead) {
  Echo echo({.max_unread_bytes = 1000});
  RawClient client(echo.port());
  client.send(get("/later"));
  HttpReply reply = echo.take();
  reply.begin_stream("text/plain");
  for (int i = 0; i < 8; ++i) reply.write(std::string(1'000'000, 'x'));
  reply.end();
  const RawAnswer answer = client.answer();
  EXPECT_TRUE(answer.is_whole);
  EXPECT_EQ(answer.body.size(), 8'000'000u);
}

TEST(HttpServer, ClosesConnectionsThatSendNothingOrTakeTooLong) {
  Echo echo({.idle_timeout_s = 1, .receive_timeout_s = 1});
  RawClient silent(echo.port()), trickling(echo.port()), waiting(echo.port());
  waiting.send(get("/later"));
  HttpReply reply = echo.take();
  trickling.send("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return !trickling.send("x") || trickling.reads_end(0.2); }));
  EXPECT_TRUE(silent.reads_end());
  reply.send(200, "it is no fault to wait for an answer");
  EXPECT_EQ(waiting.answer().status, 200);
}

TEST(HttpServer, HoldsAThousandConnectionsAndRefusesMore) {
  Echo echo({.max_connections = 1000});
  std::deque<RawClient> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.emplace_back(echo.port());
    clients.back().send(get("/later"));
  }
  ASSERT_TRUE(eventually([&] { return echo.num_waiting() == 1000; }));
  RawClient refused(echo.port());
  refused.send(get("/echo"));
  EXPECT_EQ(refused.answer().status, 0);
  EXPECT_EQ(echo.server().num_open(), 1000u);
  for (int i = 0; i < 1000; ++i) echo.take().send(200, "done");
  for (RawClient& client : clients) EXPECT_EQ(client.answer().body, "done");
  clients.clear();
  EXPECT_TRUE(eventually([&] {
    RawClient client(echo.port());
    return client.send(get("/echo")) && client.answer().status == 200;
  }));
}

TEST(HttpServer, StopsWithRequestsThatWait) {
  std::optional<HttpReply> late;
  {
    Echo echo;
    RawClient client(echo.port());
    client.send(get("/later"));
    late = echo.take();
    echo.server().stop_listening();
    EXPECT_FALSE(RawClient(echo.port()).is_connected());
    client.send(get("/echo"));  // behind the one that waits
    echo.server().stop();
    EXPECT_TRUE(client.reads_end());
    EXPECT_EQ(echo.num_gone, 1);
  }
  late->send(200, "nobody is there");
}

TEST(HttpServer, ListensOnIpv6AndNamesAPortInUse) {
  Echo echo;
  const auto message = [](const HttpOptions& options) {
    try {
      HttpServer(options, [](const HttpRequest&, const HttpReply&) {});
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message({.port = echo.port()}), HasSubstr("--port " + std::to_string(echo.port())));
  EXPECT_THAT(message({.host = "192.0.2.1"}), HasSubstr("--host 192.0.2.1"));
  if (!message({.host = "::"}).empty()) GTEST_SKIP() << "this host has no IPv6";
  HttpServer every({.host = "::"}, [](const HttpRequest& request, HttpReply reply) {
    reply.send(200, request.remote);
  });
  RawClient client(every.port());
  client.send(get("/"));
  EXPECT_EQ(client.answer().body, "127.0.0.1");
}

}  // namespace
}  // namespace megatron
