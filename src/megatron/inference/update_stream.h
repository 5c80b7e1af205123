// The updates of a request as a stream that a thread waits for.
#pragma once

#include <memory>
#include <optional>

#include "megatron/inference/request_server.h"

namespace megatron {

/// Reads the updates of a request. Its destructor cancels the request.
class UpdateStream {
 public:
  UpdateStream(UpdateStream&&) noexcept = default;
  UpdateStream& operator=(UpdateStream&&) = delete;
  ~UpdateStream() { cancel(); }

  /// Waits for the next update. Returns nothing after the last one, or once it is cancelled. Throws
  /// the error that has ended the request.
  std::optional<Update> next();
  /// Ends the request if it has not ended, and drops the updates that were not read. Another thread
  /// that waits in next() returns. Does nothing after the stream was moved from.
  void cancel();

 private:
  friend class RequestServer;
  struct State;
  explicit UpdateStream(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;  ///< null after a move
};

}  // namespace megatron
