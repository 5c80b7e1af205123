#include "megatron/control/run_status.h"

#include <poll.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <utility>

#include "megatron/base/json.h"
#include "megatron/control/store_client.h"

namespace megatron {
namespace {

/// Time between requests that find out whether the store still answers.
constexpr std::chrono::seconds kAskInterval{5};
constexpr const char* kAllLeft = "all-left";
constexpr const char* kPrinted = "printed";
constexpr const char* kLostRanks = "lost-ranks";

std::string left_key(std::int64_t rank) { return "left/" + std::to_string(rank); }

std::string written(const RankFailure& failure) {
  const Json json{{"rank", failure.rank},
                  {"host", failure.host},
                  {"code", failure.code},
                  {"text", failure.text},
                  {"is_of_others", static_cast<int>(failure.is_of_others)}};
  return compact_json(json);
}

RankFailure read(const std::string& text) {
  const std::string source = "a failure in the run's store";
  const JsonCursor json(parse_json(text, source), source);
  return {json["rank"].integer(), json["host"].text(), static_cast<int>(json["code"].integer()),
          json["text"].text(), json["is_of_others"].integer() != 0};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> RunStatus::failure_entries(
    const RankFailure& failure) {
  return {{kFailureKey, written(failure)},
          {kAllArrivedKey, kStoppedValue},
          {kHostsKey, kStoppedValue},
          {kFinishedKey, kStoppedValue}};
}

RankFailure RunStatus::post(const RankFailure& failure) {
  const RankFailure first = read(store_.compare_set(kFailureKey, "", written(failure)));
  store_.set_all({kAllArrivedKey, kHostsKey, kFinishedKey}, kStoppedValue);
  return first;
}

std::optional<RankFailure> RunStatus::first() {
  const auto text = store_.find(kFailureKey);
  return text ? std::optional(read(*text)) : std::nullopt;
}

bool RunStatus::wait_for_change(bool of_lost_ranks, std::chrono::milliseconds limit, int wake) {
  if (!std::exchange(is_watch_tried_, true)) {
    std::vector<std::string> keys{kFailureKey};
    if (of_lost_ranks) keys.emplace_back(kLostRanks);
    watch_ = store_.watch(keys);
  }
  if (!watch_) {
    pollfd event{wake, POLLIN, 0};
    ::poll(&event, 1, static_cast<int>(limit.count()));
    return true;
  }
  try {
    watch_->wait(limit, wake);
  } catch (const StoreLost&) {
    watch_.reset();  // the calls of the store itself say what has become of it
    return true;
  }
  // It polls from time to time all the same: a store that is stopped sends no change.
  const auto now = std::chrono::steady_clock::now();
  const bool has_changed = watch_->value(0) || (of_lost_ranks && watch_->value(1));
  if (!has_changed && now - last_asked_ < kAskInterval) return false;
  last_asked_ = now;
  return true;
}

std::optional<RankFailure> RunStatus::watched_first() {
  if (watch_ && watch_->value(0)) return read(*watch_->value(0));
  return first();
}

std::optional<RankFailure> RunStatus::wait_for_failure(std::chrono::milliseconds timeout) {
  return store_.poll(kFailureKey, timeout) ? first() : std::nullopt;
}

void RunStatus::report_disconnect_of(std::int64_t rank) {
  store_.set_on_disconnect(kLostRanks, std::to_string(rank) + " ");
}

std::vector<std::int64_t> RunStatus::lost_ranks() {
  std::istringstream words(store_.find(kLostRanks).value_or(""));
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; words >> rank;) ranks.push_back(rank);
  std::ranges::sort(ranks);
  ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
  return ranks;
}

bool RunStatus::claim_printing(std::int64_t rank) {
  const std::string own = std::to_string(rank);
  return store_.compare_set("printer", "", own) == own;
}

void RunStatus::set_printed() { store_.set(kPrinted, "1"); }

bool RunStatus::wait_until_printed(std::chrono::milliseconds timeout) {
  return store_.poll(kPrinted, timeout);
}

void RunStatus::leave(std::int64_t rank) {
  if (has_left_.exchange(true)) return;
  store_.clear_on_disconnect();
  store_.set(left_key(rank), "");
  if (store_.add("num-left", 1) == world_size_) store_.set_all({kFinishedKey, kAllLeft}, "left");
}

bool RunStatus::wait_until_finished(std::chrono::milliseconds timeout) {
  return store_.poll(kFinishedKey, timeout);
}

std::vector<std::int64_t> RunStatus::remaining_of(std::vector<std::int64_t> ranks) {
  std::erase_if(ranks, [&](std::int64_t rank) { return store_.has_all({left_key(rank)}); });
  return ranks;
}

std::vector<std::int64_t> RunStatus::remaining_ranks() {
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(world_size_));
  std::iota(ranks.begin(), ranks.end(), std::int64_t{0});
  return remaining_of(std::move(ranks));
}

bool RunStatus::wait_until_all_left(std::chrono::milliseconds timeout) {
  return store_.poll(kAllLeft, timeout);
}

}  // namespace megatron
