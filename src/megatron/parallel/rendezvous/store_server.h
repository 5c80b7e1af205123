// The server of the run's store: a map of texts behind a socket, served by one thread. It replaces
// c10d's own server, which resolves the name of every client that connects. That takes seconds per
// client when the resolver does not answer.
#pragma once

#include <memory>
#include <string>

#include "megatron/base/listening_socket.h"

namespace megatron {

class StoreServer {
 public:
  /// Serves until the object is destroyed. Clients must show `token` first, unless it is empty.
  explicit StoreServer(ListeningSocket socket, std::string token = "");
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace megatron
