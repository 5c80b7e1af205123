#include "megatron/base/endpoint.h"

#include <arpa/inet.h>

#include <array>
#include <cstdlib>

#include "megatron/base/descriptor.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

constexpr std::int64_t kMaxPort = 65535;

Endpoint end_of(int descriptor, int (*find)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  return find(descriptor, address, &size) == 0 ? numeric_endpoint(*address, size) : Endpoint{};
}

}  // namespace

std::string Endpoint::text() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]:" : host + ":") + std::to_string(port);
}

std::optional<Endpoint> read_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const bool has_brackets = text.starts_with('[');
  const bool has_port = colon != std::string::npos &&
                        (has_brackets ? text.find(']') + 1 == colon : text.find(':') == colon);
  Endpoint found{.host = text.substr(0, has_port ? colon : std::string::npos)};
  if (has_port) found.port = small_number(text.substr(colon + 1)).value_or(kMaxPort + 1);
  std::string& host = found.host;
  if (has_brackets && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  in6_addr ipv6{};  // a scope such as %eth0 may follow
  const bool is_host =
      host.find(':') == std::string::npos
          ? !host.empty() && host.find_first_of("[]") == std::string::npos
          : ::inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &ipv6) == 1;
  return is_host && found.port <= kMaxPort ? std::optional(found) : std::nullopt;
}

Endpoint numeric_endpoint(const sockaddr& address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  const bool is_internet = address.sa_family == AF_INET || address.sa_family == AF_INET6;
  if (!is_internet || ::getnameinfo(&address, size, host.data(), host.size(), port.data(),
                                    port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  const std::string text = host.data(), mapped = "::ffff:";
  const bool is_mapped = text.starts_with(mapped) && text.find('.') != std::string::npos;
  return {is_mapped ? text.substr(mapped.size()) : text, std::atoi(port.data())};
}

Endpoint local_endpoint(int descriptor) { return end_of(descriptor, &::getsockname); }
Endpoint peer_endpoint(int descriptor) { return end_of(descriptor, &::getpeername); }

AddressList addresses_of(const Endpoint& endpoint, std::string* reason, int flags) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int code = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found);
  if (code != 0 && reason != nullptr) *reason = ::gai_strerror(code);
  return {code == 0 ? found : nullptr, &::freeaddrinfo};
}

std::string source_address_for(const std::string& address) {
  const AddressList list = addresses_of({address, 9}, nullptr, AI_NUMERICHOST);
  if (list == nullptr) return "";
  // A datagram socket connects without sending anything.
  const Descriptor socket(::socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const bool is_connected =
      socket.is_open() && ::connect(socket.number(), list->ai_addr, list->ai_addrlen) == 0;
  return is_connected ? local_endpoint(socket.number()).host : "";
}

bool is_loopback(std::string_view address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

}  // namespace megatron
