#include "megatron/control/store_listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "megatron/base/endpoint.h"
#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Limit of the buffered requests and answers of a client that has not sent the token.
constexpr std::size_t kMaxUnauthenticatedBytes = 4096;
constexpr int kMaxEventsAtOnce = 256;
/// Limit of the buffered answers to a client that does not read them.
constexpr std::size_t kMaxOutBytes = 2 * kMaxStoreTextBytes;
/// Limit for a client to complete its handshake.
constexpr std::chrono::seconds kHandshakeLimit{30};
/// Pause before accepting again when there are no descriptors left.
constexpr timespec kRetryPause{.tv_sec = 0, .tv_nsec = 100'000'000};

/// Compares in a time that does not depend on where the texts differ.
bool is_same_token(std::string_view one, std::string_view other) {
  unsigned char difference = one.size() == other.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i)
    difference |= static_cast<unsigned char>(one[i] ^ other[i]);
  return difference == 0;
}

void change(int events, int operation, int descriptor, std::uint32_t wanted) {
  epoll_event event{};
  event.events = wanted;
  event.data.fd = descriptor;
  MEGATRON_CHECK(::epoll_ctl(events, operation, descriptor, &event) == 0,
                 "epoll: ", std::strerror(errno));
}

/// A process that was forked in the meantime may have a copy of the descriptor, which would keep
/// the connection open.
void end_connection(int descriptor) {
  ::shutdown(descriptor, SHUT_RDWR);
  ::close(descriptor);
}

}  // namespace

StoreListener::StoreListener(ListeningSocket socket, std::string token)
    : socket_(std::move(socket)),
      token_(std::move(token)),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      retry_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  MEGATRON_CHECK(events_ >= 0 && retry_ >= 0,
                 "cannot make the descriptors of the run's store: ", std::strerror(errno));
  ::fcntl(socket_.descriptor(), F_SETFL, O_NONBLOCK);
  add_descriptor(socket_.descriptor());
  add_descriptor(retry_);
}

StoreListener::~StoreListener() {
  for (const auto& [descriptor, client] : clients_) end_connection(descriptor);
  ::close(retry_);
  ::close(events_);
}

void StoreListener::add_descriptor(int descriptor) {
  change(events_, EPOLL_CTL_ADD, descriptor, EPOLLIN);
}

void StoreListener::wait_for_writing(int descriptor, bool wanted) {
  if (wanted == writing_.contains(descriptor)) return;
  if (wanted)
    writing_.insert(descriptor);
  else
    writing_.erase(descriptor);
  change(events_, EPOLL_CTL_MOD, descriptor, EPOLLIN | (wanted ? EPOLLOUT : 0U));
}

void StoreListener::remove_descriptor(int descriptor) {
  writing_.erase(descriptor);
  change(events_, EPOLL_CTL_DEL, descriptor, 0);
}

void StoreListener::serve() {
  std::array<epoll_event, kMaxEventsAtOnce> ready;
  const int count = ::epoll_wait(events_, ready.data(), kMaxEventsAtOnce, 0);
  for (int i = 0; i < count; ++i) {
    const int descriptor = ready[static_cast<std::size_t>(i)].data.fd;
    if (descriptor == socket_.descriptor()) {
      if (is_accepting_) accept_one();
    } else if (descriptor == retry_) {
      std::uint64_t expirations = 0;
      if (::read(retry_, &expirations, sizeof expirations) > 0 && is_accepting_)
        change(events_, EPOLL_CTL_MOD, socket_.descriptor(), EPOLLIN);
    } else if (const auto found = clients_.find(descriptor); found == clients_.end()) {
      on_ready(descriptor);
    } else if (!serve_client(found->second)) {
      drop(descriptor);
    }
  }
  drop_slow_handshakes();
}

void StoreListener::drop_slow_handshakes() {
  const auto now = std::chrono::steady_clock::now();
  for (; !pending_.empty() && pending_.front().second <= now; pending_.pop_front()) {
    const StoreConnection* client = find_client(pending_.front().first);
    if (client && (!client->is_validated || (!token_.empty() && !client->has_token)))
      drop(client->descriptor);
  }
}

void StoreListener::stop_accepting() {
  if (!std::exchange(is_accepting_, false)) return;
  remove_descriptor(socket_.descriptor());
  ::shutdown(socket_.descriptor(), SHUT_RDWR);
}

void StoreListener::accept_one() {
  const int descriptor =
      ::accept4(socket_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (descriptor < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    const itimerspec later{.it_interval = {}, .it_value = kRetryPause};
    change(events_, EPOLL_CTL_MOD, socket_.descriptor(), 0);  // out of descriptors
    ::timerfd_settime(retry_, 0, &later, nullptr);
    return;
  }
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  detect_silent_host(descriptor);
  StoreConnection client;
  client.descriptor = descriptor;
  client.id = ++last_id_;
  pending_.emplace_back(client.id, std::chrono::steady_clock::now() + kHandshakeLimit);
  descriptors_.emplace(client.id, descriptor);
  clients_.emplace(descriptor, std::move(client));
  add_descriptor(descriptor);
}

void StoreListener::drop(int descriptor) {
  StoreConnection client = std::move(clients_.at(descriptor));
  clients_.erase(descriptor);
  descriptors_.erase(client.id);
  remove_descriptor(descriptor);  // a copy in another process would keep it in the set
  end_connection(descriptor);
  for (const std::string& key : client.watched) {
    const auto found = watchers_.find(key);
    if (found == watchers_.end()) continue;
    found->second.erase(client.id);
    if (found->second.empty()) watchers_.erase(found);
  }
  on_end(client);
}

void StoreListener::for_each_disconnect_text(
    const StoreConnection& client,
    const std::function<void(const std::string&, const std::string&)>& action) {
  for (const auto& [whose, entry] : client.disconnect_texts) {
    const std::size_t end = entry.find('\n');
    if (end != std::string::npos) action(entry.substr(0, end), entry.substr(end + 1));
  }
}

void StoreListener::add_watcher(const std::string& key, const StoreConnection& client) {
  watchers_[key].insert(client.id);
  if (StoreConnection* own = find_client(client.id)) own->watched.insert(key);
}

void StoreListener::forget_watchers(const std::string& prefix) {
  std::erase_if(watchers_, [&](const auto& one) {
    if (!one.first.starts_with(prefix)) return false;
    for (const std::uint64_t id : one.second) {
      if (StoreConnection* client = find_client(id)) client->watched.erase(one.first);
    }
    return true;
  });
}

void StoreListener::publish_to(StoreConnection& client, const std::string& key,
                               const std::string* value) {
  if (value)
    append_frame(client.out, StoreFrame::changed, {key, *value});
  else
    append_frame(client.out, StoreFrame::missing, {key});
}

void StoreListener::publish(const std::string& key, const std::string* value) {
  const auto found = watchers_.find(key);
  if (found == watchers_.end()) return;
  for (const std::uint64_t id : found->second) {
    StoreConnection* client = find_client(id);
    if (!client) continue;
    publish_to(*client, key, value);
    flush(*client);
  }
}

void StoreListener::drop_all() {
  std::vector<int> open;
  for (const auto& [descriptor, client] : clients_) open.push_back(descriptor);
  for (const int descriptor : open) drop(descriptor);
}

StoreConnection* StoreListener::find_client(std::uint64_t id) {
  const auto found = descriptors_.find(id);
  return found == descriptors_.end() ? nullptr : &clients_.at(found->second);
}

void StoreListener::flush(StoreConnection& client) {
  if (client.out.empty()) return;
  const ssize_t count =
      ::send(client.descriptor, client.out.data(), client.out.size(), MSG_NOSIGNAL);
  // A broken connection is seen when it is read.
  if (count > 0) client.out.erase(0, static_cast<std::size_t>(count));
  wait_for_writing(client.descriptor, !client.out.empty());
}

/// Returns false when the client has disconnected or does not follow the protocol. An error of one
/// client (text instead of a number, no memory) does not affect the others.
bool StoreListener::serve_client(StoreConnection& client) {
  try {
    std::array<char, 1 << 16> buffer;
    const ssize_t count = ::recv(client.descriptor, buffer.data(), buffer.size(), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (count > 0) client.in.append(buffer.data(), static_cast<std::size_t>(count));
    if (!answer_all(client)) return false;
    flush(client);
    // A client without the token has one attempt, which is answered, and a small buffer.
    const bool is_unauthenticated = !token_.empty() && !client.has_token;
    return !client.is_refused && client.out.size() <= kMaxOutBytes &&
           (!is_unauthenticated ||
            client.in.size() + client.out.size() <= kMaxUnauthenticatedBytes);
  } catch (const std::exception&) {
    return false;
  }
}

/// Returns false if the client does not follow the protocol.
bool StoreListener::answer_all(StoreConnection& client) {
  try {
    take_messages(client.in, [&](RequestReader& reader) {
      if (client.is_refused) throw IncompleteRequest{};
      answer(static_cast<StoreRequest>(reader.number<std::uint8_t>()), reader, client);
    });
  } catch (const ProtocolError&) {
    return false;
  }
  return true;
}

void StoreListener::answer(StoreRequest request, RequestReader& reader, StoreConnection& client) {
  if (!client.is_validated && request != StoreRequest::validate) throw ProtocolError{};
  if (request == StoreRequest::validate) {
    if (reader.number<std::uint32_t>() != kStoreMagic) throw ProtocolError{};
    client.is_validated = true;
  } else if (request == StoreRequest::ping) {
    append_number(client.out, reader.number<std::uint32_t>());
  } else if (!token_.empty() && !client.has_token) {
    serve_unauthenticated(request, reader, client);
  } else if (request != StoreRequest::compare_set || !accepts_unneeded_token(reader, client)) {
    handle(request, reader, client);
  }
}

/// A client may send a token although none is required. It is not kept; the answer says so.
bool StoreListener::accepts_unneeded_token(RequestReader& reader, StoreConnection& client) {
  const auto arguments = read_compare_set_of(kTokenKey, reader);
  if (!arguments) return false;
  const std::string& token = arguments->second;
  if (client.is_framed)
    append_frame(client.out, StoreFrame::answer, {token});
  else
    append_text(client.out, token);
  return true;
}

/// Answers a request of a client that has not sent the token. Throws ProtocolError for requests
/// that it may not make.
void StoreListener::serve_unauthenticated(StoreRequest request, RequestReader& reader,
                                          StoreConnection& client) {
  const auto arguments =
      request == StoreRequest::compare_set ? read_compare_set_of(kTokenKey, reader) : std::nullopt;
  if (!arguments) throw ProtocolError{};
  client.has_token = is_same_token(arguments->second, token_);
  client.is_refused = !client.has_token;
  append_text(client.out, client.has_token ? kTokenAccepted : "refused");
}

std::string StoreListener::address_for_others() const {
  for (const auto& [descriptor, client] : clients_) {
    const std::string own = local_endpoint(descriptor).host;
    if (!own.empty() && !is_loopback(own)) return own;
  }
  return "";
}

}  // namespace megatron
