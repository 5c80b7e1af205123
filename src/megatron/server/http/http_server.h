// An HTTP/1.1 server whose answers come from any thread, at once, later, or as a stream. A few
// threads serve thousands of connections: a request that waits for its answer holds none.
//
//   HttpServer server({.port = 8000}, [&](const HttpRequest& request, HttpReply reply) {
//     if (request.path == "/health") return reply.send(200, "{}");
//     engine.add(request.body, [reply](std::string text) mutable { reply.send(200, text); });
//   });
//
// Bounded are the bytes of headers and bodies, the time in which a request must arrive, the time
// without progress, the connections, and how long much of a stream may wait for its reader, who is
// disconnected then. What is no HTTP gets status 400, 414 or 431 and a short page of the library
// (GNU libmicrohttpd), which lets nobody write another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method, path, body;
  std::string remote;   ///< numeric address of the client
  HttpHeaders headers;  ///< with names in lower case
  /// The body has more than max_body_bytes, and is empty here. The answer must be sent before the
  /// handler returns: the client gets it while it is still sending.
  bool is_too_large = false;

  /// Returns the value of the first header of the name, or null.
  const std::string* header(std::string_view lower_case_name) const;
};

/// What a handler may tell about its answer, for the log and the metrics. Seconds are since the
/// request was there.
struct ReplyUsage {
  std::int64_t prompt_tokens = 0, cached_tokens = 0, new_tokens = 0;
  double queue_s = 0, first_token_s = 0, last_token_s = 0;
};

/// What became of a request.
struct ReplyRecord {
  int status = 0;         ///< 499: the client was gone before the answer
  bool is_cut = false;    ///< the client went, or was disconnected, before the end
  double seconds = 0;     ///< from the last byte of the request to that of the answer
  ReplyUsage usage = {};  ///< zeros if the handler told nothing
  bool has_usage = false;
};

class HttpExchange;

/// The answer to one request: a handle that may be copied and kept beyond the life of the server.
/// Thread-safe, and never blocks. When the last copy is destroyed before the end of the answer, the
/// client gets status 500, or the end of the connection within a stream.
class HttpReply {
 public:
  explicit HttpReply(const std::shared_ptr<HttpExchange>& exchange);

  /// Returns the path of the request.
  const std::string& path() const;
  /// Adds a header to an answer that has not begun.
  void add_header(std::string name, std::string value);
  /// Sends a whole answer. A second one is dropped.
  void send(int status, std::string body, std::string_view content_type = "application/json",
            const HttpHeaders& headers = {});
  /// Begins an answer of status 200 whose length is not known.
  void begin_stream(std::string_view content_type);
  /// Adds bytes to the stream. They are dropped once the client is gone.
  void write(std::string_view bytes);
  void end();

  /// Calls `call` once, from any thread, if the client goes before the end of the answer; at once
  /// if it is gone already.
  void on_disconnect(std::function<void()> call);
  /// Calls `call` once, from a thread of the server, when the answer is sent or given up.
  void on_done(std::function<void(const ReplyRecord&)> call);
  void set_usage(const ReplyUsage& usage);
  bool is_connected() const;

 private:
  std::shared_ptr<HttpExchange> exchange_;  ///< whose deleter ends the answer
};

/// Answers a request, or keeps the reply to answer it later. A thread of the server calls it, so it
/// must not block. An exception is answered with status 500.
using HttpHandler = std::function<void(const HttpRequest& request, HttpReply reply)>;

struct HttpOptions {
  std::string host = "127.0.0.1";  ///< name or address; 0.0.0.0 or :: is every one
  std::int64_t port = 0;           ///< 0: any free port
  std::size_t max_body_bytes = std::size_t{64} << 20;
  std::size_t max_header_bytes = std::size_t{32} << 10;  ///< with the first line
  /// A stream of which more waits for its reader, for longer, is cut.
  std::size_t max_unread_bytes = std::size_t{1} << 20;
  double slow_reader_s = 5;
  std::int64_t max_connections = 16384;  ///< fewer if the process may not open as many files
  std::int64_t idle_timeout_s = 60;      ///< without a byte from or to the client
  std::int64_t receive_timeout_s = 120;  ///< for a whole request
  unsigned num_threads = 4;
};

class HttpServer {
 public:
  /// Listens, and serves at once. UserError that names --host or --port when it cannot.
  HttpServer(const HttpOptions& options, HttpHandler handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  std::int64_t port() const;
  /// Refuses new connections. Those that there are go on.
  void stop_listening();
  /// Returns the requests that are not answered completely.
  std::size_t num_open() const;
  /// Closes all connections. No handler runs after it returns; replies that are left do nothing.
  void stop();

 private:
  class Daemon;
  std::unique_ptr<Daemon> daemon_;
};

}  // namespace megatron
