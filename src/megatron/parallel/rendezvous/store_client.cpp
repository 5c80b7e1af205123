#include "megatron/parallel/rendezvous/store_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "megatron/base/format.h"
#include "megatron/parallel/rendezvous/store_wire.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlice{100};  ///< between looks at the clock
/// The number that a store sends back. A service that reads lines takes it for the end of a request and answers in its own way.
constexpr char kNonce[] = {'\r', '\n', '\r', '\n'};

std::string printable(const std::string& bytes) {
  std::string text;
  for (const char c : bytes.substr(0, 60)) {
    if (c == '\r' || c == '\n') break;
    text += c >= ' ' && c <= '~' ? c : '?';
  }
  return text;
}

}  // namespace

StoreClient::StoreClient(int descriptor, StoreAddress address, milliseconds patience)
    : descriptor_(descriptor), address_(std::move(address)), patience_(patience) {
  const int on = 1;
  ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

StoreClient::~StoreClient() { ::close(descriptor_); }

StoreClient::Greeting StoreClient::greet(milliseconds limit) {
  if (!has_greeted_) {
    std::string hello = begin_request(StoreRequest::validate);
    append_number(hello, kStoreMagic);
    hello += begin_request(StoreRequest::ping);
    hello.append(kNonce, sizeof kNonce);
    AwakeTimer timer;
    send_all(hello, timer);
    has_greeted_ = true;
  }
  pollfd event{descriptor_, POLLIN, 0};
  while (heard_.size() < sizeof kNonce) {
    if (::poll(&event, 1, static_cast<int>(limit.count())) != 1) return heard_.empty() ? Greeting::silent : Greeting::foreign;
    std::array<char, 256> buffer{};
    // No more than the answer: the next one belongs to the next call.
    const ssize_t count = ::recv(descriptor_, buffer.data(), sizeof kNonce - heard_.size(), 0);
    if (count <= 0) return heard_.empty() ? Greeting::closed : Greeting::foreign;
    heard_.append(buffer.data(), static_cast<std::size_t>(count));
  }
  if (std::memcmp(heard_.data(), kNonce, sizeof kNonce) == 0) return Greeting::store;
  std::array<char, 256> rest{};
  const ssize_t count = ::recv(descriptor_, rest.data(), rest.size(), 0);
  if (count > 0) heard_.append(rest.data(), static_cast<std::size_t>(count));
  heard_ = printable(heard_);
  return Greeting::foreign;
}

// ---- one call ----

void StoreClient::lose(const std::string& reason) {
  lost_ = address_.owner + ", which hosts the run's store at " + address_.text() + ", " + reason;
  throw StoreLost(lost_);
}

void StoreClient::await_event(short event, AwakeTimer& timer) {
  pollfd state{descriptor_, event, 0};
  while (::poll(&state, 1, static_cast<int>(kSlice.count())) <= 0) {
    const milliseconds patience = patience_;
    if (timer.elapsed() >= patience) {
      lose(format("has not answered for %g s: its process is stopped, or the network is cut", static_cast<double>(patience.count()) / 1000));
    }
  }
}

void StoreClient::send_all(const std::string& bytes, AwakeTimer& timer) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::send(descriptor_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      await_event(POLLOUT, timer);
    } else if (errno != EINTR) {
      lose(std::string("has gone: ") + std::strerror(errno));
    }
  }
}

void StoreClient::receive_all(void* data, std::size_t bytes, AwakeTimer& timer) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t count = ::recv(descriptor_, static_cast<char*>(data) + done, bytes - done, 0);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
    } else if (count == 0) {
      lose("has gone: the connection was closed");
    } else if (errno == EAGAIN) {
      await_event(POLLIN, timer);
    } else if (errno != EINTR) {
      lose(std::string("has gone: ") + std::strerror(errno));
    }
  }
}

/// A request and its answer, alone on the connection.
class StoreClient::Call {
 public:
  Call(StoreClient& client, const std::string& request) : client_(client), lock_(client.mutex_, std::defer_lock) {
    while (!lock_.try_lock_for(kSlice)) {
      if (timer_.elapsed() >= client.patience_.load()) throw StoreLost(client.address_.owner + ", which hosts the run's store, does not answer");
    }
    if (!client_.lost_.empty()) throw StoreLost(client_.lost_);
    client_.send_all(request, timer_);
  }
  template <class Number>
  Number number() {
    Number value{};
    client_.receive_all(&value, sizeof value, timer_);
    return value;
  }
  std::string text() {
    const auto size = number<std::uint64_t>();
    if (size > kLongestStoreText) client_.lose("answers in another language");
    std::string text(size, '\0');
    client_.receive_all(text.data(), text.size(), timer_);
    return text;
  }

 private:
  StoreClient& client_;
  AwakeTimer timer_;
  std::unique_lock<std::timed_mutex> lock_;
};

void StoreClient::set(const std::string& key, const std::string& value) {
  std::string request = begin_request(StoreRequest::set);
  append_text(request, key);
  append_text(request, value);
  Call(*this, request);
}

std::string StoreClient::compare_set(const std::string& key, const std::string& expected, const std::string& value) {
  std::string request = begin_request(StoreRequest::compare_set);
  append_text(request, key);
  append_text(request, expected);
  append_text(request, value);
  return Call(*this, request).text();
}

std::string StoreClient::get(const std::string& key) {
  std::string request = begin_request(StoreRequest::get);
  append_text(request, key);
  return Call(*this, request).text();
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t amount) {
  std::string request = begin_request(StoreRequest::add);
  append_text(request, key);
  append_number(request, amount);
  return Call(*this, request).number<std::int64_t>();
}

bool StoreClient::has(const std::vector<std::string>& keys) {
  std::string request = begin_request(StoreRequest::check);
  append_number<std::uint64_t>(request, keys.size());
  for (const std::string& key : keys) append_text(request, key);
  return Call(*this, request).number<std::uint8_t>() == 0;
}

std::int64_t StoreClient::num_keys() { return Call(*this, begin_request(StoreRequest::num_keys)).number<std::int64_t>(); }

bool StoreClient::delete_key(const std::string& key) {
  std::string request = begin_request(StoreRequest::delete_key);
  append_text(request, key);
  return Call(*this, request).number<std::int64_t>() > 0;
}

std::string StoreClient::local_address() const {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  std::array<char, NI_MAXHOST> text{};
  if (::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&own), &length) != 0) return "";
  if (::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text.data();
}

}  // namespace megatron
