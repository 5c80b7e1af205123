// A small HTTP server that answers GET requests for one path on a background thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace megatron {

class HttpEndpoint {
 public:
  struct Options {
    std::string flag;                ///< named in the error when the port cannot be opened
    int port = 0;                    ///< 0: any free port
    std::string host = "127.0.0.1";  ///< address of this host; 0.0.0.0: every one
    std::string path;                ///< "/metrics", or a regular expression
    std::string content_type = "text/plain; charset=utf-8";
  };

  /// Answers with the result of `answer`, which is called on the background thread. UserError when
  /// the address is not of this host, or the port is in use or not permitted.
  HttpEndpoint(const Options& options, std::function<std::string()> answer);
  HttpEndpoint(const HttpEndpoint&) = delete;
  HttpEndpoint& operator=(const HttpEndpoint&) = delete;
  /// Stops listening.
  ~HttpEndpoint();
  int port() const;

 private:
  struct Server;
  std::unique_ptr<Server> server_;
};

}  // namespace megatron
