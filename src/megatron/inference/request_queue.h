// Requests for text from any thread, which one thread serves: that of an engine (async_engine.h),
// or one that sends them to another rank (replicas.h).
//
//   TextStream text = server.stream({.prompt = ids});
//   while (const std::optional<Update> update = text.next()) ...
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "megatron/inference/engine.h"

namespace megatron {

/// Identifies a request at its server. Numbers are never used again.
using RequestId = std::int64_t;

/// Takes an update of a request, or the error that has ended it; Update::request is the RequestId.
/// The serving thread calls it, so it must not throw, nor wait for requests.
using OnNews = std::function<void(const Update& update, const std::exception_ptr& error)>;

class TextStream;

/// Serves requests. Any thread may call it.
class RequestServer {
 public:
  virtual ~RequestServer() = default;
  /// Adds a request, which gets its updates or an error: UserError when it cannot be served,
  /// otherwise what made the server fail. Throws that error if the server has failed before.
  virtual RequestId add_request(TextRequest request, OnNews on_news) = 0;
  /// Ends a request if it has not ended. Its OnNews is not called again after a call under way.
  virtual void cancel(RequestId request) = 0;
  /// Adds a request whose news are read from a stream.
  TextStream stream(TextRequest request);
};

/// Reads the news of a request. Its destructor cancels the request.
class TextStream {
 public:
  TextStream(TextStream&&) noexcept = default;
  TextStream& operator=(TextStream&&) = delete;
  ~TextStream() { cancel(); }

  /// Waits for the next update. Returns nothing after the last one, or once it is cancelled. Throws
  /// the error that has ended the request.
  std::optional<Update> next();
  /// Waits for the end and returns the text, or nothing if the request was cancelled. Throws like
  /// next().
  std::optional<Generation> finish();
  void cancel();

 private:
  friend class RequestServer;
  struct State;
  std::shared_ptr<State> state_;  ///< null after a move
  explicit TextStream(std::shared_ptr<State> state) : state_(std::move(state)) {}
};

/// What the serving thread is to do.
struct Command {
  enum class Kind : std::uint8_t { add, cancel, update_weights };
  Kind kind = Kind::add;
  RequestId request = 0;
  TextRequest text = {};  ///< to add
};

/// The requests that a thread has to serve, and who gets their news.
class RequestQueue : public RequestServer {
 public:
  RequestId add_request(TextRequest request, OnNews on_news) override;
  void cancel(RequestId request) override;
  /// Waits until no request is left. Throws what made the server fail.
  void drain();

 protected:
  /// Returns the commands since the last call, after waiting for one if there is none and the
  /// server is not asked to stop. The serving thread calls it, and the next three.
  std::vector<Command> take(std::chrono::milliseconds limit);
  bool has_requests();
  /// Hands on an update, or the error of a request that ends by it. Without effect if the request
  /// has ended.
  void tell(const Update& update, const std::exception_ptr& error = nullptr);
  /// Ends all requests, and later ones, with an error.
  void end(const std::exception_ptr& error);
  /// Asks the serving thread to stop.
  void stop();
  bool is_stopping();

  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  std::vector<Command> commands_;
  std::exception_ptr ended_;  ///< null while requests are served
  bool is_stopping_ = false;

 private:
  std::map<RequestId, OnNews> listeners_;
  RequestId next_request_ = 0;
};

}  // namespace megatron
