// Hosts and ports of TCP, over IPv4 and IPv6: as users write them, as the resolver finds them, and
// as the ends of a connection have them.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace megatron {

struct Endpoint {
  std::string host;        ///< Name or numeric address, without brackets.
  std::int64_t port = -1;  ///< −1: none was written.
  /// Returns HOST:PORT or [IPV6]:PORT.
  std::string text() const;
};

/// Reads HOST, IPV6 or [IPV6], and after it an optional :PORT, which a bare IPV6 cannot have.
/// Returns nullopt for any other text.
std::optional<Endpoint> read_endpoint(const std::string& text);

/// Return the numeric ends of a connection. IPv4 within IPv6 counts as IPv4. The host is "" if the
/// socket is none of TCP.
Endpoint local_endpoint(int descriptor);
Endpoint peer_endpoint(int descriptor);
Endpoint numeric_endpoint(const sockaddr& address, socklen_t size);

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// Returns the addresses of an endpoint. For a host that is unknown it returns null, and puts the
/// cause into `reason`. `flags` are those of getaddrinfo().
AddressList addresses_of(const Endpoint& endpoint, std::string* reason = nullptr, int flags = 0);

/// Returns the local address of packets from here to `address`, or "" when there is none. `address`
/// must be numeric, so that no resolver is asked.
std::string source_address_for(const std::string& address);

/// Returns whether the address is a loopback address: localhost, 127.x.y.z or ::1.
bool is_loopback(std::string_view address);

}  // namespace megatron
