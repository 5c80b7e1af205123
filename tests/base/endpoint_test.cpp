// Endpoints as users write them, and sockets that listen over IPv4 and IPv6.
#include "megatron/base/endpoint.h"

#include <gtest/gtest.h>

#include "megatron/base/listening_socket.h"

namespace megatron {
namespace {

/// Returns "HOST PORT", or "none" if the text is no endpoint.
std::string read(const std::string& text) {
  const auto found = read_endpoint(text);
  return found ? found->host + " " + std::to_string(found->port) : "none";
}

/// The forms of RFC 3986 (section 3.2.2) and RFC 4007 (section 11).
TEST(Endpoint, IsReadInEveryForm) {
  EXPECT_EQ(read("node1"), "node1 -1");
  EXPECT_EQ(read("node1:0"), "node1 0");
  EXPECT_EQ(read("10.0.0.1:29500"), "10.0.0.1 29500");
  EXPECT_EQ(read("::1"), "::1 -1");
  EXPECT_EQ(read("fe80::1%eth0"), "fe80::1%eth0 -1");
  EXPECT_EQ(read("[::1]"), "::1 -1");
  EXPECT_EQ(read("[fe80::1%eth0]:7"), "fe80::1%eth0 7");
  for (const char* wrong : {"", ":5", "a:", "a:x", "a:-1", "a:65536", "a:1:2", "[::1", "::1]", "[]",
                            "[]:5", "[::1]x", "[::1]x:5", "[::1]:"})
    EXPECT_EQ(read(wrong), "none") << wrong;
}

TEST(Endpoint, IsWrittenWithBracketsWhereItNeedsThem) {
  EXPECT_EQ((Endpoint{"node1", 7}).text(), "node1:7");
  EXPECT_EQ((Endpoint{"::1", 7}).text(), "[::1]:7");
}

/// Opens a connection to the socket from this host, and returns the ends as both sides see them.
std::string ends(const ListeningSocket& socket, const std::string& host) {
  const AddressList list = addresses_of({host, socket.port()});
  const Descriptor client(::socket(list->ai_family, SOCK_STREAM, 0));
  if (::connect(client.number(), list->ai_addr, list->ai_addrlen) != 0) return "refused";
  const Descriptor server(::accept(socket.descriptor(), nullptr, nullptr));
  return peer_endpoint(client.number()).host + " " + local_endpoint(server.number()).host;
}

TEST(ListeningSocket, OfOneHostListensAtItsLoopbackAddressOnly) {
  const ListeningSocket other({.loopback_only = true, .address_of = "127.0.1.1"});
  EXPECT_EQ(other.address(), "127.0.1.1");
  EXPECT_EQ(ends(other, "127.0.1.1"), "127.0.1.1 127.0.1.1");
  EXPECT_EQ(ends(other, "127.0.0.1"), "refused");
  EXPECT_EQ(ListeningSocket({.loopback_only = true}).address(), "127.0.0.1");
  if (!is_address_of_this_host("::1")) GTEST_SKIP() << "!! NOT RUN: this host has no IPv6";
  const ListeningSocket ipv6({.loopback_only = true, .address_of = "::1"});
  EXPECT_EQ(ipv6.address(), "::1");
  EXPECT_EQ(ends(ipv6, "::1"), "::1 ::1");
  EXPECT_THROW(ListeningSocket({.port = ipv6.port(), .loopback_only = true, .address_of = "::1"}),
               PortInUse);
}

/// IPv4 connections reach a socket for every address through IPv6.
TEST(ListeningSocket, ShowsIpv4WithinIpv6AsIpv4) {
  const ListeningSocket every(ListenOptions{});
  EXPECT_EQ(ends(every, "127.0.0.1"), "127.0.0.1 127.0.0.1");
  EXPECT_EQ(every.address(), "127.0.0.1");
}

}  // namespace
}  // namespace megatron
