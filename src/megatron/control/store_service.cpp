#include "megatron/control/store_service.h"

#include <cstdint>
#include <utility>

#include "megatron/base/words.h"

namespace megatron {

std::optional<std::string> StoreService::find(const std::string& key) const {
  const auto found = texts_.find(key);
  return found == texts_.end() ? std::nullopt : std::optional(found->second);
}

void StoreService::set(const std::string& key, std::string value) {
  texts_[key] = std::move(value);
  publish_key(key);
}

std::string StoreService::compare_set(const std::string& key, const std::string& expected,
                                      std::string value) {
  const auto found = texts_.find(key);
  if (found == texts_.end() && !expected.empty()) return expected;
  if (found != texts_.end() && found->second != expected) return found->second;
  set(key, value);
  return value;
}

void StoreService::append(const std::string& key, const std::string& text) {
  texts_[key] += text;
  publish_key(key);
}

std::string StoreService::take(const std::string& key) {
  const auto node = texts_.extract(key);
  return node ? std::move(node.mapped()) : "";
}

std::int64_t StoreService::add(const std::string& key, std::int64_t amount) {
  const auto number = exact_number<std::int64_t>(find(key).value_or("")).value_or(0);
  std::int64_t sum = 0;
  if (__builtin_add_overflow(number, amount, &sum)) sum = amount < 0 ? INT64_MIN : INT64_MAX;
  set(key, std::to_string(sum));
  return sum;
}

bool StoreService::remove(const std::string& key) {
  if (texts_.erase(key) == 0) return false;
  publish_key(key);
  return true;
}

void StoreService::remove_prefix(const std::string& prefix) {
  std::erase_if(texts_, [&](const auto& one) { return one.first.starts_with(prefix); });
  forget_watchers(prefix);
}

bool StoreService::has_all(RequestReader& reader) const {
  bool has = true;
  for (auto count = reader.number<std::uint64_t>(); count > 0; --count)
    has = texts_.contains(reader.text()) && has;
  return has;
}

/// Executes a request and appends its answer, if it has one.
void StoreService::answer(StoreRequest request, RequestReader& reader, std::string& out) {
  const auto next = [&] { return reader.text(); };
  switch (request) {
    case StoreRequest::set: {
      const std::string key = next();
      return set(key, next());
    }
    case StoreRequest::compare_set: {
      const std::string key = next(), expected = next();
      return append_text(out, compare_set(key, expected, next()));
    }
    case StoreRequest::append: {
      const std::string key = next(), text = next();
      append(key, text);
      return append_number(out, static_cast<std::int64_t>(texts_.at(key).size()));
    }
    case StoreRequest::get:
      return append_text(out, find(next()).value_or(""));
    case StoreRequest::add: {
      const std::string key = next();
      return append_number(out, add(key, reader.number<std::int64_t>()));
    }
    case StoreRequest::check:
      return append_number<std::uint8_t>(out, has_all(reader) ? 0 : 1);
    case StoreRequest::num_keys:
      return append_number(out, static_cast<std::int64_t>(texts_.size()));
    case StoreRequest::delete_key:
      return append_number(out, static_cast<std::int64_t>(remove(next())));
    default:
      throw ProtocolError{};
  }
}

const std::string* StoreService::value_of(const std::string& key) const {
  const auto found = texts_.find(key);
  return found == texts_.end() ? nullptr : &found->second;
}

void StoreService::handle(StoreRequest request, RequestReader& reader, StoreConnection& client) {
  if (takes_frames(request, client)) return;
  if (request == StoreRequest::watch && client.is_framed) {
    const std::string key = reader.text();
    add_watcher(key, client);
    publish_to(client, key, value_of(key));
    return append_frame(client.out, StoreFrame::answer, {""});
  }
  if (request == StoreRequest::compare_set && takes_disconnect_text(reader, client)) return;
  if (!client.is_framed) return answer(request, reader, client.out);
  std::string text;
  answer(request, reader, text);
  if (request != StoreRequest::set) append_frame(client.out, StoreFrame::answer, {text});
}

bool StoreService::takes_disconnect_text(RequestReader& reader, StoreConnection& client) {
  const auto arguments = read_compare_set_of(kOnDisconnectKey, reader);
  if (!arguments) return false;
  const auto& [whose, entry] = *arguments;  // whose: "" unless the client is a relay
  if (entry.empty())
    client.disconnect_texts.erase(whose);
  else
    client.disconnect_texts[whose] = entry;
  if (!client.is_framed) append_text(client.out, entry);
  return true;
}

void StoreService::on_end(StoreConnection& client) {
  for_each_disconnect_text(
      client, [this](const std::string& key, const std::string& text) { append(key, text); });
}

StoreServer::StoreServer(ListeningSocket socket, std::string token)
    : service_(std::move(socket), std::move(token)), thread_([this] {
        while (stop_.wait_readable(service_.descriptor())) service_.serve();
      }) {}

StoreServer::~StoreServer() {
  stop_.set();
  thread_.join();
}

}  // namespace megatron
