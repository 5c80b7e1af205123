// A web server within the test's process, on 127.0.0.1: it serves objects with range requests, and
// with the faults that a test asks for. It works on sockets, so that every byte of an answer is the
// test's.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "megatron/base/listening_socket.h"

namespace megatron {

struct ServerRequest {
  std::string target;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::uint64_t first = 0, last = 0;           ///< of the range
};

struct ServerAnswer {
  std::string status = "206 Partial Content";
  std::map<std::string, std::string> headers;
  std::string body;
  std::optional<std::size_t> drop_after = {};  ///< closes the connection after these bytes of body
  std::chrono::milliseconds delay{0};          ///< before the answer
};

/// Changes an answer before it is sent. `number` counts requests from 0.
using ServerFault = std::function<void(int number, const ServerRequest&, ServerAnswer&)>;

class ObjectServer {
 public:
  ObjectServer() : socket_({.port = 0, .loopback_only = true}), thread_([this] { accept_all(); }) {}
  ObjectServer(const ObjectServer&) = delete;
  ObjectServer& operator=(const ObjectServer&) = delete;
  ~ObjectServer() {
    stops_ = true;
    thread_.join();
    for (std::thread& connection : connections_) connection.join();
  }

  std::string origin() const { return "http://127.0.0.1:" + std::to_string(socket_.port()); }
  std::string url(const std::string& path) const { return origin() + "/" + path; }

  /// Serves `content` as /path.
  void put(const std::string& path, std::string content, std::string etag = "\"v1\"") {
    const std::lock_guard lock(mutex_);
    objects_["/" + path] = {std::move(content), std::move(etag)};
  }
  void set_fault(ServerFault fault) {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }
  std::vector<ServerRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  /// Returns the ranges that were asked for, as "first-last", since the last call.
  std::vector<std::string> take_ranges() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> ranges;
    for (; taken_ < requests_.size(); ++taken_)
      ranges.push_back(std::to_string(requests_[taken_].first) + "-" +
                       std::to_string(requests_[taken_].last));
    return ranges;
  }

 private:
  struct Object {
    std::string content, etag;
  };

  void accept_all() {
    while (!stops_) {
      if (!is_readable(socket_.descriptor())) continue;
      const int descriptor = ::accept4(socket_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
      if (descriptor >= 0) connections_.emplace_back([this, descriptor] { serve(descriptor); });
    }
  }

  static bool is_readable(int descriptor) {
    pollfd waited{.fd = descriptor, .events = POLLIN, .revents = 0};
    return ::poll(&waited, 1, 20) > 0;
  }

  void serve(int descriptor) {
    std::string input;
    for (bool is_open = true; is_open && !stops_;) {
      const std::size_t end = input.find("\r\n\r\n");
      if (end != std::string::npos) {
        is_open = answer(descriptor, input.substr(0, end + 2));
        input.erase(0, end + 4);
        continue;
      }
      if (!is_readable(descriptor)) continue;
      char buffer[4096];
      const ssize_t count = ::recv(descriptor, buffer, sizeof buffer, 0);
      if (count <= 0) break;
      input.append(buffer, static_cast<std::size_t>(count));
    }
    ::close(descriptor);
  }

  static ServerRequest parse(const std::string& text) {
    std::istringstream stream(text);
    ServerRequest request;
    std::string method, line;
    stream >> method >> request.target;
    std::getline(stream, line);
    while (std::getline(stream, line)) {
      const std::size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      std::string name = line.substr(0, colon), value = line.substr(colon + 1);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      value.erase(0, value.find_first_not_of(' '));
      value.erase(value.find_last_not_of("\r\n") + 1);
      request.headers[name] = value;
    }
    if (const auto range = request.headers.find("range"); range != request.headers.end())
      std::sscanf(range->second.c_str(), "bytes=%lu-%lu", &request.first, &request.last);
    return request;
  }

  ServerAnswer make_answer(const ServerRequest& request) {
    const auto object = objects_.find(request.target.substr(0, request.target.find('?')));
    if (object == objects_.end()) return {.status = "404 Not Found", .headers = {}, .body = "none"};
    const std::string& content = object->second.content;
    ServerAnswer answer;
    if (!object->second.etag.empty()) answer.headers["ETag"] = object->second.etag;
    if (request.first >= content.size()) {
      answer.status = "416 Range Not Satisfiable";
      answer.headers["Content-Range"] = "bytes */" + std::to_string(content.size());
      return answer;
    }
    const std::uint64_t last = std::min<std::uint64_t>(request.last, content.size() - 1);
    answer.body = content.substr(request.first, last - request.first + 1);
    answer.headers["Content-Range"] = "bytes " + std::to_string(request.first) + "-" +
                                      std::to_string(last) + "/" + std::to_string(content.size());
    return answer;
  }

  /// Returns whether the connection stays open.
  bool answer(int descriptor, const std::string& text) {
    const ServerRequest request = parse(text);
    ServerAnswer answer;
    {
      const std::lock_guard lock(mutex_);
      answer = make_answer(request);
      if (fault_) fault_(static_cast<int>(requests_.size()), request, answer);
      requests_.push_back(request);
    }
    std::this_thread::sleep_for(answer.delay);
    answer.headers.try_emplace("Content-Length", std::to_string(answer.body.size()));
    std::string output = "HTTP/1.1 " + answer.status + "\r\n";
    for (const auto& [name, value] : answer.headers) output += name + ": " + value + "\r\n";
    output += "\r\n" + answer.body.substr(0, answer.drop_after.value_or(answer.body.size()));
    for (std::size_t sent = 0; sent < output.size();) {
      const ssize_t count =
          ::send(descriptor, output.data() + sent, output.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<std::size_t>(count);
    }
    return !answer.drop_after;
  }

  ListeningSocket socket_;
  std::atomic<bool> stops_ = false;
  mutable std::mutex mutex_;
  std::map<std::string, Object> objects_;
  ServerFault fault_;
  std::vector<ServerRequest> requests_;
  std::size_t taken_ = 0;
  std::vector<std::thread> connections_;
  std::thread thread_;
};

}  // namespace megatron
