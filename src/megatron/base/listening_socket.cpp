#include "megatron/base/listening_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

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

std::string numeric(const sockaddr& address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(&address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return text.data();
}

int bind_to(int family, const sockaddr* address, socklen_t size) {
  const int descriptor = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  const int on = 1, off = 0;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) ::setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(descriptor, address, size) == 0 && ::listen(descriptor, kBacklog) == 0)
    return descriptor;
  const int code = errno;
  ::close(descriptor);
  errno = code;
  return -1;
}

int open_ipv4(const ListenOptions& wanted) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(wanted.port));
  address.sin_addr.s_addr = htonl(wanted.loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
  return bind_to(AF_INET, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

/// Opens one socket that accepts both IPv6 and IPv4 connections.
int open_ipv6(const ListenOptions& wanted) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<std::uint16_t>(wanted.port));
  address.sin6_addr = in6addr_any;
  return bind_to(AF_INET6, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// Returns null for a host that is unknown.
AddressList addresses_of(const std::string& host, std::int64_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return {code == 0 ? found : nullptr, &::freeaddrinfo};
}

/// Opens the socket at the only address of a host name. Returns −1 if there is none to bind to.
int open_address_of(const std::string& host, std::int64_t port) {
  const AddressList list = addresses_of(host, port);
  errno = 0;
  if (list == nullptr || list->ai_next != nullptr ||
      is_loopback(numeric(*list->ai_addr, list->ai_addrlen).c_str()))
    return -1;
  return bind_to(list->ai_family, list->ai_addr, list->ai_addrlen);
}

int open_port(const ListenOptions& wanted) {
  if (!wanted.loopback_only && !wanted.address_of.empty()) {
    const int descriptor = open_address_of(wanted.address_of, wanted.port);
    if (descriptor >= 0) return descriptor;
    if (errno == EADDRINUSE) refuse(wanted.port, errno);
  }
  int descriptor = wanted.loopback_only ? -1 : open_ipv6(wanted);
  const bool has_no_ipv6 =
      descriptor < 0 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL || errno == EPERM);
  if (wanted.loopback_only || has_no_ipv6) descriptor = open_ipv4(wanted);
  if (descriptor < 0) refuse(wanted.port, errno);
  return descriptor;
}

}  // namespace

bool is_address_of_this_host(const std::string& host) {
  const AddressList list = addresses_of(host, 0);
  for (const addrinfo* one = list.get(); one; one = one->ai_next) {
    if (Descriptor(bind_to(one->ai_family, one->ai_addr, one->ai_addrlen)).is_open()) return true;
  }
  return false;
}

ListeningSocket::ListeningSocket(const ListenOptions& wanted)
    : descriptor_(open_port(wanted)), port_(listening_port(descriptor())) {}

std::string local_address_of(int descriptor) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "";
  return numeric(reinterpret_cast<const sockaddr&>(address), length);
}

std::string ListeningSocket::address() const {
  const std::string text = local_address_of(descriptor());
  const bool is_every_address = text.empty() || text == "0.0.0.0" || text == "::";
  return is_every_address ? "127.0.0.1" : text;
}

std::int64_t listening_port(int descriptor) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0)
    return 0;
  sockaddr_storage address{};
  length = sizeof address;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return address.ss_family == AF_INET
             ? ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port)
             : 0;
}

bool is_loopback(const char* address) {
  const std::string_view text(address);
  return text == "localhost" || text == "::1" || text.starts_with("127.");
}

}  // namespace megatron
