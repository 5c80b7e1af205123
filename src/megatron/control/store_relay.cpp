#include "megatron/control/store_relay.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "megatron/control/store_client.h"

namespace megatron {

StoreRelay::StoreRelay(ListeningSocket socket, std::string token, StoreClient& upstream)
    : StoreListener(std::move(socket), std::move(token)),
      own_address_(upstream.local_address()),
      upstream_(upstream.release()) {
  add_descriptor(upstream_.number());
  forward(request_of(StoreRequest::frames));
}

void StoreRelay::compare_set(const std::string& key, const std::string& expected,
                             const std::string& value) {
  forward(request_of(StoreRequest::compare_set, {key, expected, value}), Awaited{});
}

void StoreRelay::append(const std::string& key, const std::string& text) {
  forward(request_of(StoreRequest::append, {key, text}), Awaited{});
}

void StoreRelay::set_on_disconnect(const std::string& key, const std::string& text) {
  const std::string entry = key + "\n" + text;
  forward(request_of(StoreRequest::compare_set, {kOnDisconnectKey, "agent", entry}));
}

void StoreRelay::watch(const std::string& key) {
  const auto [place, is_new] = watched_.try_emplace(key);
  if (is_new) ask_for(key, place->second);
}

void StoreRelay::ask_for(const std::string& key, Watched& watched, std::uint64_t client_id) {
  ++watched.awaited;
  forward(request_of(StoreRequest::watch, {key}), Awaited{client_id, key});
}

std::optional<std::string> StoreRelay::value(const std::string& key) const {
  const auto found = watched_.find(key);
  if (found == watched_.end() || !found->second.is_known()) return std::nullopt;
  return found->second.value;
}

void StoreRelay::forget_prefix(const std::string& prefix) {
  std::erase_if(watched_, [&](const auto& one) { return one.first.starts_with(prefix); });
  forget_watchers(prefix);
}

void StoreRelay::send_heartbeat(const std::string& key, std::chrono::milliseconds interval) {
  if (since_asked_ && since_asked_->elapsed() < interval) return;
  since_asked_.emplace();
  std::string request = request_of(StoreRequest::add, {key});
  append_number<std::int64_t>(request, 1);
  forward(request, Awaited{});
}

std::chrono::milliseconds StoreRelay::silence() const {
  return awaited_.empty() ? std::chrono::milliseconds(0) : since_heard_.elapsed();
}

void StoreRelay::handle(StoreRequest request, RequestReader& reader, StoreConnection& client) {
  if (takes_frames(request, client)) return;
  if (request == StoreRequest::check) return check(reader, client);
  if (request == StoreRequest::watch && client.is_framed) return add_watch(reader.text(), client);
  switch (request) {
    case StoreRequest::set:
    case StoreRequest::compare_set:
    case StoreRequest::append:
    case StoreRequest::add:
    case StoreRequest::delete_key: {
      const std::string key = reader.text();
      if (request == StoreRequest::add) reader.number<std::int64_t>();
      if (request == StoreRequest::set || request == StoreRequest::append) reader.text();
      if (request == StoreRequest::compare_set) {
        reader.text();  // what is expected
        const std::string value = reader.text();
        if (key == kOnDisconnectKey) return keep_disconnect_text(value, client);
      }
      forward(std::string(reader.consumed()),
              request == StoreRequest::set ? std::nullopt : std::optional(Awaited{client.id, ""}));
      // The client must see what it has written, so the value that is known is out of date.
      const auto known = watched_.find(key);
      if (known != watched_.end()) ask_for(key, known->second);
      return;
    }
    case StoreRequest::get: {
      const std::string key = reader.text();
      // A framed client gets its answers in the order of its requests.
      if (const auto known = value(key); known && !client.is_framed)
        return append_text(client.out, *known);
      return forward(std::string(reader.consumed()), Awaited{client.id, ""});
    }
    case StoreRequest::num_keys:
      return forward(std::string(reader.consumed()), Awaited{client.id, ""});
    default:
      throw ProtocolError{};
  }
}

/// The store is asked once for a key, however many clients watch it.
void StoreRelay::add_watch(const std::string& key, StoreConnection& client) {
  add_watcher(key, client);
  const auto [place, is_new] = watched_.try_emplace(key);
  const Watched& watched = place->second;
  if (is_new) return ask_for(key, place->second, client.id);
  if (watched.is_known()) publish_to(client, key, watched.value ? &*watched.value : nullptr);
  append_frame(client.out, StoreFrame::answer, {""});
}

/// Answers from what is known about the keys, or asks the store. A single key is watched from then
/// on: the client is likely to ask again.
void StoreRelay::check(RequestReader& reader, StoreConnection& client) {
  std::vector<std::string> keys;
  for (auto count = reader.number<std::uint64_t>(); count > 0; --count)
    keys.push_back(reader.text());
  bool is_known = true, has_all = true;
  for (const std::string& key : keys) {
    const auto found = watched_.find(key);
    is_known = is_known && found != watched_.end() && found->second.is_known();
    has_all = has_all && is_known && found->second.value.has_value();
  }
  if (is_known && !client.is_framed)
    return append_number<std::uint8_t>(client.out, has_all ? 0 : 1);
  forward(std::string(reader.consumed()), Awaited{client.id, ""});
  if (keys.size() == 1) watch(keys.front());
}

void StoreRelay::keep_disconnect_text(const std::string& entry, StoreConnection& client) {
  client.disconnect_texts.clear();
  if (!entry.empty()) client.disconnect_texts[""] = entry;
  forward(
      request_of(StoreRequest::compare_set, {kOnDisconnectKey, std::to_string(client.id), entry}));
  if (!client.is_framed) append_text(client.out, entry);
}

/// The store itself appends the texts only when the connection of this relay ends.
void StoreRelay::on_end(StoreConnection& client) {
  if (!lost_reason_.empty()) return;
  for_each_disconnect_text(client, [&](const std::string& key, const std::string& text) {
    append(key, text);
    forward(
        request_of(StoreRequest::compare_set, {kOnDisconnectKey, std::to_string(client.id), ""}));
  });
}

/// `awaited`: who gets the answer, if the request has one.
void StoreRelay::forward(const std::string& request, const std::optional<Awaited>& awaited) {
  if (!lost_reason_.empty()) return;
  if (awaited && awaited_.empty()) since_heard_ = SuspendAwareTimer();
  if (awaited) awaited_.push_back(*awaited);
  out_ += request;
  send_upstream();
}

void StoreRelay::send_upstream() {
  while (!out_.empty()) {
    const ssize_t count = ::send(upstream_.number(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;  // it cannot take more now, or is broken, which reading shows
    out_.erase(0, static_cast<std::size_t>(count));
  }
  wait_for_writing(upstream_.number(), !out_.empty());
}

void StoreRelay::on_ready(int descriptor) {
  if (descriptor != upstream_.number()) return;
  read_upstream();
  if (lost_reason_.empty() && !out_.empty()) send_upstream();
}

void StoreRelay::read_upstream() {
  std::array<char, 1 << 16> buffer;
  const ssize_t count = ::recv(upstream_.number(), buffer.data(), buffer.size(), 0);
  if (count == 0) return lose("it has closed the connection");
  if (count < 0 && errno != EAGAIN && errno != EINTR) return lose(std::strerror(errno));
  if (count > 0) in_.append(buffer.data(), static_cast<std::size_t>(count));
  try {
    take_messages(in_, [this](RequestReader& reader) { take_frame(reader); });
  } catch (const ProtocolError&) {
    lose("it has sent an invalid reply");
  }
}

void StoreRelay::take_frame(RequestReader& reader) {
  const auto kind = static_cast<StoreFrame>(reader.number<std::uint8_t>());
  const std::string key = reader.text();
  if (kind == StoreFrame::answer) return take_answer(key);
  if (kind != StoreFrame::changed && kind != StoreFrame::missing) throw ProtocolError{};
  std::optional<std::string> text;
  if (kind == StoreFrame::changed) text = reader.text();
  const auto found = watched_.find(key);
  if (found == watched_.end()) return;
  found->second.value = std::move(text);
  publish(key, found->second.value ? &*found->second.value : nullptr);
}

void StoreRelay::take_answer(const std::string& answer) {
  if (awaited_.empty()) throw ProtocolError{};
  const Awaited awaited = std::move(awaited_.front());
  awaited_.pop_front();
  since_heard_ = SuspendAwareTimer();
  const auto watched = watched_.find(awaited.key);
  if (!awaited.key.empty() && watched != watched_.end() && watched->second.awaited > 0)
    --watched->second.awaited;
  StoreConnection* client = find_client(awaited.client_id);
  if (!client) return;
  if (client->is_framed)
    append_frame(client->out, StoreFrame::answer, {answer});
  else
    client->out += answer;
  flush(*client);
}

void StoreRelay::lose(const std::string& reason) {
  lost_reason_ = reason;
  remove_descriptor(upstream_.number());
  stop_accepting();
  drop_all();
}

}  // namespace megatron
