#include "megatron/server/http/http_exchange.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "megatron/base/monotonic_clock.h"
#include "megatron/inference/completions/completion_request.h"

namespace megatron {

// Callbacks are called, and destroyed, without the lock: they may own replies to this request.

void HttpExchange::suspend() {
  is_suspended_ = true;
  suspend_();
}

void HttpExchange::resume() {
  if (std::exchange(is_suspended_, false) && resume_) resume_();
}

void HttpExchange::begin() {
  const std::lock_guard lock(mutex_);
  begin_s_ = monotonic_seconds();
}

HttpExchange::Step HttpExchange::next(Head& head) {
  const std::lock_guard lock(mutex_);
  if (!head_ && is_gone_) return Step::close;
  if (!head_) {
    suspend();
    return Step::wait;
  }
  head = std::move(*head_);
  head_.reset();
  return Step::answer;
}

std::int64_t HttpExchange::read(char* buffer, std::size_t size) {
  const std::lock_guard lock(mutex_);
  if (is_gone_) return kStreamBroken;
  if (unread_.empty() && has_ended_) return kStreamEnd;
  if (unread_.empty()) {
    suspend();
    return 0;
  }
  const std::size_t count = std::min(size, unread_.size());
  std::memcpy(buffer, unread_.data(), count);
  unread_.erase(0, count);
  return static_cast<std::int64_t>(count);
}

void HttpExchange::complete(bool is_sent) {
  std::function<void()> on_disconnect;
  std::function<void(const ReplyRecord&)> on_done;
  ReplyRecord record;
  bool is_early = false;
  {
    const std::lock_guard lock(mutex_);
    suspend_ = resume_ = shut_down_ = nullptr;
    record_.is_cut = !is_sent;
    is_early = !has_ended_;
    is_gone_ = true;
    if (!has_head_) record_.status = 499;
    record_.seconds = begin_s_ > 0 ? monotonic_seconds() - begin_s_ : 0;
    unread_ = {};
    head_.reset();
    record = record_;
    on_disconnect = std::exchange(on_disconnect_, nullptr);
    on_done = std::exchange(on_done_, nullptr);
  }
  if (on_disconnect && is_early) on_disconnect();
  if (on_done) on_done(record);
}

void HttpExchange::disconnect(bool at_once) {
  std::function<void()> call;
  bool is_early = false;
  {
    const std::lock_guard lock(mutex_);
    if (at_once && shut_down_) shut_down_();
    if (std::exchange(is_gone_, true)) return;
    is_early = !has_ended_;
    unread_ = {};
    call = std::exchange(on_disconnect_, nullptr);
    resume();
  }
  if (call && is_early) call();
}

void HttpExchange::send(Head head) {
  const std::lock_guard lock(mutex_);
  if (is_gone_ || std::exchange(has_head_, true)) return;
  record_.status = head.status;
  is_stream_ = head.is_stream;
  has_ended_ = !head.is_stream;
  std::ranges::move(std::exchange(headers_, {}), std::back_inserter(head.headers));
  head_ = std::move(head);
  resume();
}

void HttpExchange::abandon() {
  bool is_stream = false;
  {
    const std::lock_guard lock(mutex_);
    if (has_ended_) return;
    is_stream = is_stream_;
  }
  if (is_stream) return disconnect();  // the client must not take it for complete
  send({.status = 500,
        .headers = {{"Content-Type", "application/json"}},
        .body = error_json({500, "the server gave no answer"}).dump()});
}

/// Returns whether more than max_unread_bytes have waited for slow_reader_s, or many times as much
/// waits.
bool HttpExchange::is_read_too_slowly() {
  if (unread_.size() <= max_unread_bytes_) {
    behind_since_s_ = 0;
    return false;
  }
  const double now_s = monotonic_seconds();
  if (behind_since_s_ == 0) behind_since_s_ = now_s;
  return now_s - behind_since_s_ >= slow_reader_s_ || unread_.size() / 16 > max_unread_bytes_;
}

HttpReply::HttpReply(const std::shared_ptr<HttpExchange>& exchange)
    : exchange_(exchange.get(), [exchange](HttpExchange*) { exchange->abandon(); }) {}

const std::string& HttpReply::path() const { return exchange_->request.path; }

void HttpReply::add_header(std::string name, std::string value) {
  const std::lock_guard lock(exchange_->mutex_);
  exchange_->headers_.emplace_back(std::move(name), std::move(value));
}

void HttpReply::send(int status, std::string body, std::string_view content_type,
                     const HttpHeaders& headers) {
  HttpExchange::Head head{.status = status, .headers = headers, .body = std::move(body)};
  if (!content_type.empty()) head.headers.emplace_back("Content-Type", content_type);
  exchange_->send(std::move(head));
}

void HttpReply::begin_stream(std::string_view content_type) {
  exchange_->send({.headers = {{"Content-Type", std::string(content_type)},
                               {"Cache-Control", "no-cache"},
                               {"X-Accel-Buffering", "no"}},
                   .is_stream = true});
}

void HttpReply::write(std::string_view bytes) {
  HttpExchange& exchange = *exchange_;
  {
    const std::lock_guard lock(exchange.mutex_);
    if (!exchange.is_stream_ || exchange.has_ended_ || exchange.is_gone_) return;
    if (!exchange.is_read_too_slowly()) {
      exchange.unread_.append(bytes);
      return exchange.resume();
    }
  }
  exchange.disconnect(/*at_once=*/true);
}

void HttpReply::end() {
  const std::lock_guard lock(exchange_->mutex_);
  exchange_->has_ended_ |= exchange_->is_stream_;
  exchange_->resume();
}

void HttpReply::on_disconnect(std::function<void()> call) {
  {
    const std::lock_guard lock(exchange_->mutex_);
    if (exchange_->has_ended_) return;
    if (!exchange_->is_gone_) return std::swap(exchange_->on_disconnect_, call);
  }
  call();
}

void HttpReply::on_done(std::function<void(const ReplyRecord&)> call) {
  const std::lock_guard lock(exchange_->mutex_);
  exchange_->on_done_ = std::move(call);
}

void HttpReply::set_usage(const ReplyUsage& usage) {
  const std::lock_guard lock(exchange_->mutex_);
  exchange_->record_.usage = usage;
  exchange_->record_.has_usage = true;
}

bool HttpReply::is_connected() const {
  const std::lock_guard lock(exchange_->mutex_);
  return !exchange_->is_gone_;
}

}  // namespace megatron
