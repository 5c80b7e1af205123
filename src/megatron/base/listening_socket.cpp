#include "megatron/base/listening_socket.h"

#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "megatron/base/endpoint.h"

namespace megatron {
namespace {

constexpr int kBacklog = 4096;  ///< ranks that may connect before rank 0 accepts

[[noreturn]] void refuse(std::int64_t port, int code) {
  const std::string name = port == 0 ? "a free port" : "port " + std::to_string(port);
  if (code == EADDRINUSE)
    throw PortInUse({name + " of this host", "is in use by another process",
                     "choose another port with --master-port, or MASTER_PORT on every rank"});
  if (code == EACCES)
    throw UserError({name + " of this host", "may not be opened by this user (EACCES)",
                     "choose a port above 1023"});
  throw UserError({name + " of this host", std::string("cannot be opened: ") + std::strerror(code),
                   "choose another port with --master-port or MASTER_PORT"});
}

/// Returns −1 and sets errno if the address cannot be had. An IPv6 socket for every address also
/// accepts IPv4 connections.
int bind_to(const addrinfo& at) {
  const int descriptor = ::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  const int on = 1, off = 0;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);  // none for IPv4
  if (::bind(descriptor, at.ai_addr, at.ai_addrlen) == 0 && ::listen(descriptor, kBacklog) == 0)
    return descriptor;
  const int code = errno;
  ::close(descriptor);
  errno = code;
  return -1;
}

/// Opens the socket at an address of `host`: at its first on loopback if others are not wanted,
/// else at its only one, if that is not on loopback. Returns −1 if there is none to bind to.
int open_address_of(const std::string& host, const ListenOptions& wanted) {
  const AddressList list = addresses_of({host, wanted.port});
  for (const addrinfo* one = list.get(); one; one = one->ai_next) {
    const bool is_local = is_loopback(numeric_endpoint(*one->ai_addr, one->ai_addrlen).host);
    if (is_local != wanted.loopback_only || (!is_local && list->ai_next)) continue;
    const int descriptor = bind_to(*one);
    if (descriptor >= 0 || errno == EADDRINUSE) return descriptor;
  }
  return -1;
}

int open_port(const ListenOptions& wanted) {
  using Hosts = std::array<std::string, 3>;
  const Hosts hosts = wanted.loopback_only ? Hosts{wanted.address_of, "127.0.0.1", "::1"}
                                           : Hosts{wanted.address_of, "::", "0.0.0.0"};
  errno = 0;
  for (const std::string& host : hosts) {
    const int descriptor = host.empty() ? -1 : open_address_of(host, wanted);
    if (descriptor >= 0) return descriptor;
    if (errno == EADDRINUSE) break;
  }
  refuse(wanted.port, errno);
}

}  // namespace

Descriptor listen_at(const std::string& host, std::int64_t port) {
  std::string reason = "is not an address of this host";
  const AddressList list = addresses_of({host, port}, &reason);
  int code = EADDRNOTAVAIL;
  for (const addrinfo* one = list.get(); one; one = one->ai_next) {
    Descriptor descriptor(bind_to(*one));
    if (descriptor.is_open()) return descriptor;
    if (code != EADDRINUSE && code != EACCES) code = errno;
  }
  if (code == EADDRINUSE || code == EACCES)
    throw UserError({"--port " + std::to_string(port),
                     code == EACCES ? "may not be opened by this user (EACCES)"
                                    : "is in use by another process",
                     code == EACCES ? "choose a port above 1023"
                                    : "choose another port, or 0 for any free one"});
  throw UserError({"--host " + host, reason,
                   "give 127.0.0.1, 0.0.0.0 or :: (every address), or an address of this host"});
}

bool is_address_of_this_host(const std::string& host) {
  const AddressList list = addresses_of({host, 0});
  for (const addrinfo* one = list.get(); one; one = one->ai_next) {
    if (Descriptor(bind_to(*one)).is_open()) return true;
  }
  return false;
}

ListeningSocket::ListeningSocket(const ListenOptions& wanted)
    : descriptor_(open_port(wanted)), port_(local_endpoint(descriptor()).port) {}

std::string ListeningSocket::address() const {
  const std::string host = local_endpoint(descriptor()).host;
  const bool is_every_address = host.empty() || host == "0.0.0.0" || host == "::";
  return is_every_address ? "127.0.0.1" : host;
}

}  // namespace megatron
