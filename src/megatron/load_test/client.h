// A client of a server that speaks OpenAI's API, which measures streamed answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatron/config/bench_serve_options.h"

namespace megatron {

/// What a client saw of one request. Times are seconds after the load began.
struct RequestRecord {
  double start_s = 0, first_s = 0, end_s = 0;  ///< it was sent, its first token came, its last one
  double late_s = 0;                           ///< between the time when it was due and its start
  std::vector<double> gaps_s;                  ///< between its tokens
  std::int64_t prompt_tokens = 0, output_tokens = 0;
  std::string error;  ///< why it failed, such as "HTTP 429: the queue is full"; "": it did not
};

/// One connection, which is kept for further requests. Not thread-safe.
class LoadClient {
 public:
  using Clock = std::chrono::steady_clock;

  /// Does not connect yet. Throws a UserError if the URL is none.
  explicit LoadClient(const BenchServeOptions& options);
  ~LoadClient();

  /// Returns the first model that the server lists. Throws a UserError if it does not answer.
  std::string first_model();
  /// Returns the ids of a text; empty if the server has no /tokenize.
  std::vector<std::int64_t> tokenize(const std::string& text, const std::string& model);

  /// Sends a request with this JSON body and reads the streamed answer. Does not throw for what the
  /// server does. Without usage in the answer, its chunks count as tokens.
  RequestRecord send(const std::string& body, Clock::time_point begin);

 private:
  struct Connection;
  std::unique_ptr<Connection> connection_;
};

}  // namespace megatron
