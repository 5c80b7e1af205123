// Asks a small HTTP server.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace megatron {

/// Sends one request over a raw socket and reads until the server closes it.
inline std::string answer(int port, const std::string& path) {
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET,
                      .sin_port = htons(static_cast<std::uint16_t>(port)),
                      .sin_addr = {htonl(INADDR_LOOPBACK)},
                      .sin_zero = {}};
  EXPECT_EQ(::connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(::send(connection, request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  std::string text;
  char buffer[4096];
  for (ssize_t size; (size = ::recv(connection, buffer, sizeof buffer, 0)) > 0;)
    text.append(buffer, static_cast<std::size_t>(size));
  ::close(connection);
  return text;
}

}  // namespace megatron
