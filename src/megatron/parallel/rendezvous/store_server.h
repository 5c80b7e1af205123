// The server of the run's store: a map of texts behind a socket, served by one thread. c10d's own
// server asks the resolver for the name of every client that connects, which takes seconds for each
// where the resolver does not answer.
#pragma once

#include <memory>

#include "megatron/base/listening_socket.h"

namespace megatron {

class StoreServer {
 public:
  /// Serves until destruction.
  explicit StoreServer(ListeningSocket socket);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace megatron
