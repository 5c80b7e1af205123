// What a server counts, for GET /metrics.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "megatron/metrics/exposition_writer.h"
#include "megatron/server/http/http_server.h"

namespace megatron {

/// Counts requests, tokens and times since the process started. Thread-safe.
class ServerMetrics {
 public:
  ServerMetrics();

  /// Counts a request that has ended. `route` is its path in the router's table.
  void add(const std::string& route, const ReplyRecord& record);
  /// Writes all metrics; their names are those of vLLM with another prefix.
  void write(ExpositionWriter& out) const;

 private:
  mutable std::mutex mutex_;                                      ///< guards what follows
  std::map<std::pair<std::string, int>, std::int64_t> requests_;  ///< by route and status
  std::int64_t prompt_tokens_ = 0, cached_tokens_ = 0, new_tokens_ = 0;
  BucketCounts first_token_s_, token_gap_s_, request_s_, queue_s_;
};

}  // namespace megatron
