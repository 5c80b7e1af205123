// The run's store behind a thread of its own, for rank 0 where no launcher hosts it.
#pragma once

#include <memory>
#include <string>

#include "megatron/base/listening_socket.h"

namespace megatron {

class StoreServer {
 public:
  /// Serves until the object is destroyed. Clients must send `token` first, unless it is empty.
  explicit StoreServer(ListeningSocket socket, std::string token = "");
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace megatron
