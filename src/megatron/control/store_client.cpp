#include "megatron/control/store_client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "megatron/base/format.h"
#include "megatron/base/machine.h"
#include "megatron/control/store_protocol.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPollInterval{100};  ///< Time between checks of the deadline.
/// The number that a store sends back. A line-based service takes it for the end of a request and
/// answers with its own reply.
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

StoreClient::StoreClient(int descriptor, StoreAddress address, milliseconds timeout)
    : descriptor_(descriptor), address_(std::move(address)), timeout_(timeout) {
  const int on = 1;
  ::setsockopt(descriptor_.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  detect_silent_host(descriptor_.number());
}

StoreClient::HandshakeResult StoreClient::handshake(milliseconds limit) {
  if (!is_handshake_done_) {
    std::string hello = request_of(StoreRequest::validate);
    append_number(hello, kStoreMagic);
    hello += request_of(StoreRequest::ping);
    hello.append(kNonce, sizeof kNonce);
    SuspendAwareTimer timer;
    send_all(hello, timer);
    is_handshake_done_ = true;
  }
  pollfd event{descriptor_.number(), POLLIN, 0};
  while (foreign_reply_.size() < sizeof kNonce) {
    if (::poll(&event, 1, static_cast<int>(limit.count())) != 1)
      return foreign_reply_.empty() ? HandshakeResult::silent : HandshakeResult::foreign;
    std::array<char, 256> buffer{};
    // Read only this answer; further bytes belong to the next call.
    const ssize_t count =
        ::recv(descriptor_.number(), buffer.data(), sizeof kNonce - foreign_reply_.size(), 0);
    if (count <= 0)
      return foreign_reply_.empty() ? HandshakeResult::closed : HandshakeResult::foreign;
    foreign_reply_.append(buffer.data(), static_cast<std::size_t>(count));
  }
  if (std::memcmp(foreign_reply_.data(), kNonce, sizeof kNonce) == 0) return HandshakeResult::store;
  std::array<char, 256> rest{};
  const ssize_t count = ::recv(descriptor_.number(), rest.data(), rest.size(), 0);
  if (count > 0) foreign_reply_.append(rest.data(), static_cast<std::size_t>(count));
  foreign_reply_ = printable(foreign_reply_);
  return HandshakeResult::foreign;
}

// ---- one call ----

std::string StoreClient::loss_text(const std::string& reason) const {
  return address_.owner + ", which hosts the run's store at " + address_.text() + ", " + reason;
}

std::string StoreClient::no_answer_text(milliseconds timeout) const {
  const std::string silence =
      format("has not answered for %g s: ", static_cast<double>(timeout.count()) / 1000);
  if (is_process_stopped(address_.relay))
    return "the launcher of " + host_name() + ", which connects it to the run's store, " + silence +
           "it is stopped (process " + std::to_string(address_.relay) + ")";
  return loss_text(silence + "its process is stopped, or the network is cut");
}

void StoreClient::fail_connection(const std::string& text) {
  lost_reason_ = text;
  throw StoreLost(lost_reason_);
}

void StoreClient::await_event(short event, SuspendAwareTimer& timer) {
  pollfd state{descriptor_.number(), event, 0};
  while (::poll(&state, 1, static_cast<int>(kPollInterval.count())) <= 0) {
    const milliseconds timeout = timeout_;
    if (timer.elapsed() >= timeout) fail_connection(no_answer_text(timeout));
  }
}

void StoreClient::send_all(const std::string& bytes, SuspendAwareTimer& timer) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count =
        ::send(descriptor_.number(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      await_event(POLLOUT, timer);
    } else if (errno != EINTR) {
      fail_connection(loss_text(std::string("is unreachable: ") + std::strerror(errno)));
    }
  }
}

void StoreClient::receive_all(void* data, std::size_t bytes, SuspendAwareTimer& timer) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t count =
        ::recv(descriptor_.number(), static_cast<char*>(data) + done, bytes - done, 0);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
    } else if (count == 0) {
      fail_connection(loss_text("has closed the connection"));
    } else if (errno == EAGAIN) {
      await_event(POLLIN, timer);
    } else if (errno != EINTR) {
      fail_connection(loss_text(std::string("is unreachable: ") + std::strerror(errno)));
    }
  }
}

/// One request and its answer. It locks the connection.
class StoreClient::Call {
 public:
  Call(StoreClient& client, const std::string& request)
      : client_(client), lock_(client.mutex_, std::defer_lock) {
    while (!lock_.try_lock_for(kPollInterval)) {
      const milliseconds timeout = client.timeout_;
      // Another thread's call still waits for its answer, so the store has not answered this one.
      if (timer_.elapsed() >= timeout) throw StoreLost(client.no_answer_text(timeout));
    }
    if (!client_.lost_reason_.empty()) throw StoreLost(client_.lost_reason_);
    client_.send_all(request, timer_);
  }
  void send(const std::string& request) { client_.send_all(request, timer_); }
  template <class Number>
  Number number() {
    Number value{};
    client_.receive_all(&value, sizeof value, timer_);
    return value;
  }
  std::string text() {
    const auto size = number<std::uint64_t>();
    if (size > kMaxStoreTextBytes)
      client_.fail_connection(client_.loss_text("has sent an invalid reply"));
    std::string text(size, '\0');
    client_.receive_all(text.data(), text.size(), timer_);
    return text;
  }

 private:
  StoreClient& client_;
  SuspendAwareTimer timer_;
  std::unique_lock<std::timed_mutex> lock_;
};

void StoreClient::send(const std::string& requests) { Call(*this, requests); }

void StoreClient::set(const std::string& key, const std::string& value) {
  send(request_of(StoreRequest::set, {key, value}));
}

std::string StoreClient::compare_set(const std::string& key, const std::string& expected,
                                     const std::string& value) {
  return Call(*this, request_of(StoreRequest::compare_set, {key, expected, value})).text();
}

std::string StoreClient::get(const std::string& key) {
  return Call(*this, request_of(StoreRequest::get, {key})).text();
}

std::vector<std::string> StoreClient::get_all(const std::vector<std::string>& keys) {
  constexpr std::size_t kRequestsAtOnce = 100;  // so that answers fit into the buffers
  std::vector<std::string> values;
  Call call(*this, "");
  while (values.size() < keys.size()) {
    const std::size_t end = std::min(keys.size(), values.size() + kRequestsAtOnce);
    std::string requests;
    for (std::size_t i = values.size(); i < end; ++i)
      requests += request_of(StoreRequest::get, {keys[i]});
    call.send(requests);
    while (values.size() < end) values.push_back(call.text());
  }
  return values;
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t amount) {
  std::string request = request_of(StoreRequest::add, {key});
  append_number(request, amount);
  return Call(*this, request).number<std::int64_t>();
}

bool StoreClient::has(const std::vector<std::string>& keys) {
  std::string request = request_of(StoreRequest::check);
  append_number<std::uint64_t>(request, keys.size());
  for (const std::string& key : keys) append_text(request, key);
  return Call(*this, request).number<std::uint8_t>() == 0;
}

std::int64_t StoreClient::num_keys() {
  return Call(*this, request_of(StoreRequest::num_keys)).number<std::int64_t>();
}

bool StoreClient::delete_key(const std::string& key) {
  return Call(*this, request_of(StoreRequest::delete_key, {key})).number<std::int64_t>() > 0;
}

}  // namespace megatron
