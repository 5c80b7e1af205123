// A TCP port open for connections: where rank 0 hosts the store. Opened early, so that a port in
// use is told at once and connections queue before anybody accepts them.
#pragma once

#include <cstdint>

namespace megatron {

struct ListenOptions {
  std::int64_t port = 0;       ///< 0: any free one
  bool loopback_only = false;  ///< reachable from this host alone
};

/// Owns the descriptor, which is closed on exec.
class ListeningSocket {
 public:
  /// UserError naming the port when it cannot be had.
  explicit ListeningSocket(const ListenOptions& wanted);
  /// Takes over an open one.
  static ListeningSocket adopt(int descriptor);
  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&& other) noexcept;
  ~ListeningSocket();

  int descriptor() const { return descriptor_; }
  std::int64_t port() const { return port_; }
  /// Gives the descriptor away.
  int release();

 private:
  ListeningSocket() = default;
  int descriptor_ = -1;
  std::int64_t port_ = 0;
};

/// The TCP port that a descriptor listens on; 0 when it is no such socket.
std::int64_t listening_port(int descriptor);

/// Whether the address names this host only: localhost, 127.x.y.z, ::1.
bool is_loopback(const char* address);

}  // namespace megatron
