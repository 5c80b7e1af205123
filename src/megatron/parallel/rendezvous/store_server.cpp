#include "megatron/parallel/rendezvous/store_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/parallel/rendezvous/store_protocol.h"

namespace megatron {
namespace {

/// Thrown when only a part of the request has arrived.
struct Incomplete {};
/// Thrown when a client does not follow the protocol.
struct Foreign {};

class RequestReader {
 public:
  explicit RequestReader(std::string_view bytes) : bytes_(bytes) {}

  template <class Number>
  Number number() {
    Number value;
    // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): take() returns that many bytes.
    std::memcpy(&value, take(sizeof(Number)).data(), sizeof(Number));
    return value;
  }
  std::string text() {
    const auto size = number<std::uint64_t>();
    if (size > kMaxStoreTextBytes) throw Foreign{};
    return std::string(take(size));
  }
  std::size_t position() const { return at_; }

 private:
  std::string_view take(std::size_t count) {
    if (bytes_.size() - at_ < count) throw Incomplete{};
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

/// The map of texts, which answers requests one by one.
class Table {
 public:
  void append(const std::string& key, const std::string& text) { texts_[key] += text; }

  /// Executes a request and appends its answer, if it has one.
  void serve(StoreRequest request, RequestReader& reader, std::string& answer) {
    switch (request) {
      case StoreRequest::validate:
        if (reader.number<std::uint32_t>() != kStoreMagic) throw Foreign{};
        return;
      case StoreRequest::ping:
        return append_number(answer, reader.number<std::uint32_t>());
      case StoreRequest::set:
        return set(reader);
      case StoreRequest::compare_set:
        return append_text(answer, compare_set(reader));
      case StoreRequest::get:
        return append_text(answer, find(reader.text()));
      case StoreRequest::add:
        return append_number(answer, add(reader));
      case StoreRequest::check:
        return append_number<std::uint8_t>(answer, has_all(reader) ? 0 : 1);
      case StoreRequest::num_keys:
        return append_number(answer, static_cast<std::int64_t>(texts_.size()));
      case StoreRequest::delete_key:
        return append_number(answer, static_cast<std::int64_t>(texts_.erase(reader.text())));
      default:
        throw Foreign{};
    }
  }

 private:
  std::string find(const std::string& key) const {
    const auto found = texts_.find(key);
    return found == texts_.end() ? "" : found->second;
  }
  void set(RequestReader& reader) {
    std::string key = reader.text(), value = reader.text();
    texts_[std::move(key)] = std::move(value);
  }
  std::string compare_set(RequestReader& reader) {
    const std::string key = reader.text();
    std::string expected = reader.text(), value = reader.text();
    const auto found = texts_.find(key);
    if (found == texts_.end() && !expected.empty()) return expected;
    if (found != texts_.end() && found->second != expected) return found->second;
    return texts_[key] = std::move(value);
  }
  std::int64_t add(RequestReader& reader) {
    const std::string key = reader.text();
    const auto amount = reader.number<std::int64_t>();
    const std::string before = find(key);
    const std::int64_t sum = amount + (before.empty() ? 0 : std::stoll(before));
    texts_[key] = std::to_string(sum);
    return sum;
  }
  bool has_all(RequestReader& reader) const {
    bool has = true;
    for (auto count = reader.number<std::uint64_t>(); count > 0; --count)
      has = texts_.contains(reader.text()) && has;
    return has;
  }

  std::unordered_map<std::string, std::string> texts_;
};

struct Client {
  std::string in, out;
  bool is_validated = false, has_token = false, is_refused = false;
  std::string last_will;  ///< see kLastWillKey
};

/// What a client that has not shown the token may keep waiting, in requests and answers.
constexpr std::size_t kMaxStrangerBytes = 4096;

/// Compares in a time that does not depend on where the texts differ.
bool is_same_token(std::string_view one, std::string_view other) {
  unsigned char difference = one.size() == other.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i)
    difference |= static_cast<unsigned char>(one[i] ^ other[i]);
  return difference == 0;
}

}  // namespace

class StoreServer::Loop {
 public:
  Loop(ListeningSocket socket, std::string token)
      : socket_(std::move(socket)),
        token_(std::move(token)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    MEGATRON_CHECK(wake_ >= 0, "cannot make an eventfd for the run's store");
    ::fcntl(socket_.descriptor(), F_SETFL, O_NONBLOCK);
    thread_ = std::thread([this] { run(); });
  }
  ~Loop() {
    const std::uint64_t one = 1;
    const ssize_t written = ::write(wake_, &one, sizeof one);
    MEGATRON_CHECK(written == sizeof one, "cannot wake the thread of the run's store");
    thread_.join();
    for (const auto& [descriptor, client] : clients_) ::close(descriptor);
    ::close(wake_);
  }

 private:
  void run() {
    while (true) {
      std::vector<pollfd> events{
          {wake_, POLLIN, 0}, {socket_.descriptor(), static_cast<short>(accepts_ ? POLLIN : 0), 0}};
      for (const auto& [descriptor, client] : clients_) {
        events.push_back(
            {descriptor, static_cast<short>(client.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
      }
      const int ready = ::poll(events.data(), events.size(), accepts_ ? -1 : 100);
      accepts_ = true;
      if (ready <= 0) continue;
      if (events[0].revents != 0) return;
      if (events[1].revents != 0) accept_one();
      for (std::size_t i = 2; i < events.size(); ++i) {
        if (events[i].revents != 0 && !serves(events[i].fd)) drop(events[i].fd);
      }
    }
  }

  void accept_one() {
    const int descriptor =
        ::accept4(socket_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor < 0) {
      accepts_ = errno == EAGAIN || errno == EINTR ||
                 errno == ECONNABORTED;  // else out of descriptors: retried soon
      return;
    }
    const int on = 1;
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    notice_silent_host(descriptor);
    clients_.emplace(descriptor, Client{});
  }

  void drop(int descriptor) {
    const std::string will = std::move(clients_.at(descriptor).last_will);
    if (const std::size_t end = will.find('\n'); end != std::string::npos)
      table_.append(will.substr(0, end), will.substr(end + 1));
    ::close(descriptor);
    clients_.erase(descriptor);
  }

  /// Returns false when the client must be dropped. An error of one client (text instead of a
  /// number, no memory) does not affect the others.
  bool serves(int descriptor) {
    try {
      return serve_client(descriptor);
    } catch (const std::exception&) {
      return false;
    }
  }

  /// Returns false when the client has disconnected or does not follow the protocol.
  bool serve_client(int descriptor) {
    Client& client = clients_.at(descriptor);
    char buffer[1 << 16];
    const ssize_t count = ::recv(descriptor, buffer, sizeof buffer, 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (count > 0) client.in.append(buffer, static_cast<std::size_t>(count));
    if (!answer_all(client) || !send_some(descriptor, client)) return false;
    // One guess, which is answered, and no memory for strangers.
    const bool is_stranger = !token_.empty() && !client.has_token;
    return !client.is_refused &&
           (!is_stranger || client.in.size() + client.out.size() <= kMaxStrangerBytes);
  }

  bool answer_all(Client& client) {
    std::size_t done = 0;
    try {
      while (done < client.in.size() && !client.is_refused) {
        RequestReader reader(std::string_view(client.in).substr(done));
        const auto request = static_cast<StoreRequest>(reader.number<std::uint8_t>());
        if (!client.is_validated && request != StoreRequest::validate) return false;
        if (token_.empty() || client.has_token)
          serve(request, reader, client);
        else
          serve_stranger(request, reader, client);
        client.is_validated = true;
        done += reader.position();
      }
    } catch (const Incomplete&) {
      // Expected: the rest of the request will arrive later.
    } catch (const Foreign&) {
      return false;
    }
    client.in.erase(0, done);
    return true;
  }

  static bool send_some(int descriptor, Client& client) {
    if (client.out.empty()) return true;
    const ssize_t count = ::send(descriptor, client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    client.out.erase(0, static_cast<std::size_t>(count));
    return true;
  }

  void serve(StoreRequest request, RequestReader& reader, Client& client) {
    RequestReader ahead = reader;
    if (request != StoreRequest::compare_set || ahead.text() != kLastWillKey)
      return table_.serve(request, reader, client.out);
    reader.text();
    reader.text();
    std::string will = reader.text();
    append_text(client.out, will);
    client.last_will = std::move(will);
  }

  /// Answers a request of a client that has not shown the token. Throws Foreign for requests that
  /// it may not make.
  void serve_stranger(StoreRequest request, RequestReader& reader, Client& client) {
    if (request == StoreRequest::validate || request == StoreRequest::ping)
      return table_.serve(request, reader, client.out);
    if (request != StoreRequest::compare_set || reader.text() != kTokenKey) throw Foreign{};
    reader.text();
    client.has_token = is_same_token(reader.text(), token_);
    client.is_refused = !client.has_token;
    append_text(client.out, client.has_token ? kTokenAccepted : "refused");
  }

  ListeningSocket socket_;
  const std::string token_;
  int wake_;
  bool accepts_ = true;
  Table table_;
  std::map<int, Client> clients_;
  std::thread thread_;
};

StoreServer::StoreServer(ListeningSocket socket, std::string token)
    : loop_(std::make_unique<Loop>(std::move(socket), std::move(token))) {}
StoreServer::~StoreServer() = default;

}  // namespace megatron
