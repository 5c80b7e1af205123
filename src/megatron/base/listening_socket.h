// A TCP port that is open for connections, on which rank 0 hosts the store. It is opened early, so
// that a port in use is reported at once and connections queue before the store accepts them.
#pragma once

#include <cstdint>
#include <string>

#include "megatron/base/descriptor.h"
#include "megatron/base/error.h"

namespace megatron {

/// Another process listens on the port.
class PortInUse : public UserError {
 public:
  using UserError::UserError;
};

struct ListenOptions {
  std::int64_t port = 0;       ///< 0: any free port
  bool loopback_only = false;  ///< accept connections from this host only
  /// Accept connections only at the address of this host name: at its first on loopback, if it is
  /// to be one; else at its only one, if that is an address of this host which other hosts can
  /// reach. Without such an address: at 127.0.0.1, or at every address.
  std::string address_of = {};
};

/// Owns the descriptor of a listening socket. The descriptor is closed on exec.
class ListeningSocket {
 public:
  /// Opens the port. Throws a UserError that names the port if it cannot be opened, a PortInUse if
  /// that is because of another process.
  explicit ListeningSocket(const ListenOptions& wanted);

  int descriptor() const { return descriptor_.number(); }
  std::int64_t port() const { return port_; }
  /// Returns the numeric address at which this host reaches the socket.
  std::string address() const;

 private:
  Descriptor descriptor_;
  std::int64_t port_ = 0;
};

/// Opens a listening socket at an address of `host`; 0.0.0.0 is every IPv4 address, and :: every
/// address. Port 0 is any free port. UserError that names --host or --port.
Descriptor listen_at(const std::string& host, std::int64_t port);

/// Returns whether the name or numeric address is one of this host.
bool is_address_of_this_host(const std::string& host);

}  // namespace megatron
