// One request with its answer, between a thread of the library that serves the connection and the
// threads that answer. Only http_server.cpp and http_exchange.cpp need it.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "megatron/server/http/http_server.h"

namespace megatron {

/// The library's thread calls next(), read() and complete(), one at a time, and waits for `resume`
/// when these say that there is nothing to do. HttpReply changes the answer. Thread-safe.
class HttpExchange {
 public:
  /// What begins an answer.
  struct Head {
    int status = 200;
    HttpHeaders headers = {};
    std::string body = {};
    bool is_stream = false;
  };
  enum class Step { answer, wait, close };

  /// `suspend` stops the library's work on the connection, and `resume` continues it; `shut_down`
  /// ends the connection. They are called under the lock, so that none is lost.
  HttpExchange(const HttpOptions& limits, std::function<void()> suspend,
               std::function<void()> resume, std::function<void()> shut_down)
      : max_unread_bytes_(limits.max_unread_bytes),
        slow_reader_s_(limits.slow_reader_s),
        suspend_(std::move(suspend)),
        resume_(std::move(resume)),
        shut_down_(std::move(shut_down)) {}

  HttpRequest request;

  /// Starts the clock of the answer: the request is there.
  void begin();
  /// Moves the answer to `head` once it has begun. Otherwise suspends the connection, or says that
  /// it is to be closed.
  Step next(Head& head);
  /// Returns how many bytes of the stream were copied to `buffer`; 0 after it was suspended; less
  /// than 0 at its end (kStreamEnd) or if it is broken (kStreamBroken).
  std::int64_t read(char* buffer, std::size_t size);
  static constexpr std::int64_t kStreamEnd = -1, kStreamBroken = -2;
  /// Ends the work of the library: the connection is no longer its.
  void complete(bool is_sent);
  /// The client is gone, or is to go. With `at_once` the connection ends though the client does not
  /// read what was sent.
  void disconnect(bool at_once = false);
  /// No HttpReply is left.
  void abandon();

 private:
  friend class HttpReply;
  void suspend();
  void resume();
  void send(Head head);
  bool is_read_too_slowly();

  const std::size_t max_unread_bytes_;
  const double slow_reader_s_;
  std::mutex mutex_;                                    ///< guards what follows
  std::function<void()> suspend_, resume_, shut_down_;  ///< null once the library's work ends
  HttpHeaders headers_;                                 ///< of the answer, by add_header()
  std::optional<Head> head_;                            ///< of an answer that was not taken
  std::string unread_;                                  ///< bytes of the stream
  bool has_head_ = false, is_stream_ = false;           ///< the answer has begun
  bool has_ended_ = false;                              ///< nothing is to be added to the answer
  bool is_suspended_ = false, is_gone_ = false;
  double begin_s_ = 0, behind_since_s_ = 0;
  ReplyRecord record_;
  std::function<void()> on_disconnect_;
  std::function<void(const ReplyRecord&)> on_done_;
};

}  // namespace megatron
