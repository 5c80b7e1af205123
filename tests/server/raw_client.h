// A client of HTTP on a socket, so that every byte is the test's.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "megatron/base/descriptor.h"
#include "megatron/base/monotonic_clock.h"

namespace megatron {

struct RawAnswer {
  int status = 0;  ///< 0: the connection ended before an answer
  std::map<std::string, std::string> headers = {};
  std::string body = {};
  bool is_whole = false;
};

class RawClient {
 public:
  explicit RawClient(std::int64_t port, int receive_buffer = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0)
      ::setsockopt(socket_.number(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = ::connect(socket_.number(), reinterpret_cast<const sockaddr*>(&address),
                              sizeof address) == 0;
  }

  bool is_connected() const { return is_connected_; }
  /// Returns whether all was sent.
  bool send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t count = ::send(socket_.number(), text.data(), text.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  void close() { socket_.close(); }
  void shut_sending() const { ::shutdown(socket_.number(), SHUT_WR); }

  /// Reads until the text is there. Returns false at the end of the connection or after the time.
  bool read_until(std::string_view text, double limit_s = 10) {
    const double end_s = monotonic_seconds() + limit_s;
    while (read_.find(text) == std::string::npos)
      if (!read_some(end_s)) return false;
    return true;
  }
  /// Returns whether the server closes the connection in time.
  bool reads_end(double limit_s = 10) {
    const double end_s = monotonic_seconds() + limit_s;
    while (read_some(end_s)) continue;
    return has_ended_;
  }
  const std::string& unread() const { return read_; }

  /// Reads the next answer, with a body of known length or in chunks.
  RawAnswer answer(bool has_body = true) {
    RawAnswer answer;
    if (!read_until("\r\n\r\n")) return answer;
    std::string head = take(read_.find("\r\n\r\n") + 4);
    answer.status = std::atoi(head.c_str() + std::min<std::size_t>(9, head.size()));
    for (std::size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
      const std::size_t end = head.find("\r\n", at), colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      answer.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    if (!has_body) return answer.is_whole = true, answer;
    if (answer.headers.contains("content-length")) {
      const auto size = static_cast<std::size_t>(std::stoul(answer.headers["content-length"]));
      answer.is_whole = read_size(size);
      answer.body = take(std::min(size, read_.size()));
      return answer;
    }
    while (read_until("\r\n")) {
      const std::string line = take(read_.find("\r\n") + 2);
      const std::size_t size = std::stoul(line, nullptr, 16);
      if (!read_size(size + 2)) break;
      answer.body += take(size + 2).substr(0, size);
      if (size == 0) return answer.is_whole = true, answer;
    }
    return answer;
  }

 private:
  bool read_some(double end_s) {
    pollfd event{socket_.number(), POLLIN, 0};
    const auto left_ms = static_cast<int>(1000 * std::max(0.0, end_s - monotonic_seconds()));
    if (has_ended_ || ::poll(&event, 1, left_ms) != 1) return false;
    char buffer[16384];
    const ssize_t count = ::recv(socket_.number(), buffer, sizeof buffer, 0);
    has_ended_ = count <= 0;
    if (count > 0) read_.append(buffer, static_cast<std::size_t>(count));
    return count > 0;
  }
  bool read_size(std::size_t size) {
    const double end_s = monotonic_seconds() + 10;
    while (read_.size() < size)
      if (!read_some(end_s)) return false;
    return true;
  }
  std::string take(std::size_t size) {
    std::string taken = read_.substr(0, size);
    read_.erase(0, size);
    return taken;
  }

  Descriptor socket_;
  std::string read_;
  bool is_connected_ = false, has_ended_ = false;
};

/// Returns a request with a body.
inline std::string post(const std::string& path, const std::string& body,
                        const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: test\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}
inline std::string get(const std::string& path, const std::string& headers = "",
                       const std::string& method = "GET") {
  return method + " " + path + " HTTP/1.1\r\nHost: test\r\n" + headers + "\r\n";
}

/// Waits until the condition holds. Returns false after some seconds.
template <class Condition>
bool eventually(const Condition& holds, double limit_s = 10) {
  const double end_s = monotonic_seconds() + limit_s;
  while (!holds()) {
    if (monotonic_seconds() > end_s) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

}  // namespace megatron
