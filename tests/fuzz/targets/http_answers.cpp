// The answers of a server to requests for ranges. The input holds the answer to the request that
// asks for the size and the answer to those that read, separated by a NUL byte; a server of this
// process sends them and closes the connection.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/base/storage/http_range_reader.h"

namespace megatron::fuzz {
namespace {

/// Sends each client the next of the answers, the last one again and again.
class RawServer {
 public:
  RawServer() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    require(::bind(listener_, generic, size) == 0 && ::listen(listener_, 64) == 0 &&
                ::getsockname(listener_, generic, &size) == 0,
            "no server can be opened");
    port_ = ntohs(address.sin_port);
    std::thread([this] { serve(); }).detach();  // until the process ends
  }

  int port() const { return port_; }
  void answer(std::vector<std::string> answers) {
    const std::lock_guard lock(mutex_);
    answers_ = std::move(answers);
    next_ = 0;
  }

 private:
  std::string take() {
    const std::lock_guard lock(mutex_);
    const std::size_t index = std::min(next_++, answers_.size() - 1);
    return answers_[index];
  }

  void serve() {
    while (true) {
      const int client = ::accept(listener_, nullptr, nullptr);
      if (client < 0) continue;
      std::string request;
      char part[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t size = ::recv(client, part, sizeof(part), 0);
        if (size <= 0) break;
        request.append(part, static_cast<std::size_t>(size));
      }
      const std::string text = take();
      ::send(client, text.data(), text.size(), MSG_NOSIGNAL);
      ::shutdown(client, SHUT_WR);
      while (::recv(client, part, sizeof(part), 0) > 0) {
      }
      ::close(client);
    }
  }

  int listener_, port_ = 0;
  std::mutex mutex_;
  std::vector<std::string> answers_ = {""};
  std::size_t next_ = 0;
};

}  // namespace

void parse_http_answers(std::string_view input) {
  static RawServer& server = *new RawServer;
  const std::string opening(take_part(input));
  server.answer({opening, std::string(input)});
  // An object of S3, because its client follows no redirection to other hosts.
  const std::string origin = "http://127.0.0.1:" + std::to_string(server.port());
  ObjectLocation location{.name = "s3://bucket/key",
                          .origin = origin,
                          .host = origin.substr(7),
                          .target = "/bucket/key",
                          .s3 = S3Credentials{}};
  const HttpRangeReader reader(std::move(location),
                               {.attempts = 1, .first_delay_s = 0, .timeout_s = 5});
  const std::uint64_t size = reader.size();
  std::vector<std::byte> bytes(std::min<std::uint64_t>(size, 16));
  if (!bytes.empty()) reader.read(size - bytes.size(), bytes);
}

}  // namespace megatron::fuzz
