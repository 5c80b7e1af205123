#include "megatron/parallel/rendezvous/failure_board.h"

#include <nlohmann/json.hpp>

#include "megatron/base/json.h"

namespace megatron {
namespace {

constexpr const char* kFailure = "failure";
constexpr const char* kAllLeft = "all-left";
constexpr const char* kPrinted = "printed";

std::string end_key(std::int64_t rank) { return "end/" + std::to_string(rank); }

std::string written(const RankFailure& failure) {
  return Json{{"rank", failure.rank}, {"host", failure.host}, {"code", failure.code}, {"text", failure.text}}.dump(-1, ' ', false,
                                                                                                                   Json::error_handler_t::replace);
}

RankFailure read(const std::string& text) {
  const std::string source = "a failure in the run's store";
  const Json json = parse_json(text, source);
  return {json_int(json, "rank", source), json_string(json, "host", source), static_cast<int>(json_int(json, "code", source)),
          json_string(json, "text", source)};
}

}  // namespace

RankFailure FailureBoard::post(const RankFailure& failure) {
  const RankFailure first = read(store_.compare_set(kFailure, "", written(failure)));
  std::vector<std::string> keys{kAllHere, kGo, kOver};
  for (std::int64_t rank = 0; rank < world_size_; ++rank) keys.push_back(end_key(rank));
  store_.set_all(keys, kStop);
  return first;
}

std::optional<RankFailure> FailureBoard::first() {
  const auto text = store_.find(kFailure);
  return text ? std::optional(read(*text)) : std::nullopt;
}

void FailureBoard::wait_for_end(std::int64_t rank) { store_.wait(end_key(rank)); }

void FailureBoard::wake(std::int64_t rank) { store_.set(end_key(rank), "left"); }

void FailureBoard::set_printed() { store_.set(kPrinted, "1"); }

bool FailureBoard::wait_until_printed(std::chrono::milliseconds timeout) { return store_.poll(kPrinted, timeout); }

void FailureBoard::leave() {
  if (store_.add("left", 1) == world_size_) store_.set_all({kOver, kAllLeft}, "left");
}

void FailureBoard::wait_until_over() { store_.wait(kOver); }

bool FailureBoard::wait_until_all_left(std::chrono::milliseconds timeout) { return store_.poll(kAllLeft, timeout); }

}  // namespace megatron
