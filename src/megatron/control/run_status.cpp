#include "megatron/control/run_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "megatron/base/json.h"

namespace megatron {
namespace {

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
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankFailure read(const std::string& text) {
  const std::string source = "a failure in the run's store";
  const Json json = parse_json(text, source);
  return {json_int(json, "rank", source), json_string(json, "host", source),
          static_cast<int>(json_int(json, "code", source)), json_string(json, "text", source),
          json_int(json, "is_of_others", source) != 0};
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

std::optional<RankFailure> RunStatus::wait_for_failure(std::chrono::milliseconds timeout) {
  return store_.poll(kFailureKey, timeout) ? first() : std::nullopt;
}

void RunStatus::note_loss_of(std::int64_t rank) {
  store_.set_last_will(kLostRanks, std::to_string(rank) + " ");
}

std::vector<std::int64_t> RunStatus::lost_ranks() {
  std::istringstream words(store_.find(kLostRanks).value_or(""));
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; words >> rank;) ranks.push_back(rank);
  std::ranges::sort(ranks);
  return ranks;
}

void RunStatus::set_printed() { store_.set(kPrinted, "1"); }

bool RunStatus::wait_until_printed(std::chrono::milliseconds timeout) {
  return store_.poll(kPrinted, timeout);
}

void RunStatus::leave(std::int64_t rank) {
  store_.withdraw_last_will();
  store_.set(left_key(rank), "");
  if (store_.add("num-left", 1) == world_size_) store_.set_all({kFinishedKey, kAllLeft}, "left");
}

bool RunStatus::wait_until_finished(std::chrono::milliseconds timeout) {
  return store_.poll(kFinishedKey, timeout);
}

std::vector<std::int64_t> RunStatus::remaining_ranks() {
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < world_size_; ++rank) {
    if (!store_.has_all({left_key(rank)})) ranks.push_back(rank);
  }
  return ranks;
}

bool RunStatus::wait_until_all_left(std::chrono::milliseconds timeout) {
  return store_.poll(kAllLeft, timeout);
}

}  // namespace megatron
