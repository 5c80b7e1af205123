#include "megatron/server/server_metrics.h"

#include <vector>

namespace megatron {
namespace {

/// Upper ends of ranges of seconds, two for each factor of ten.
std::vector<double> bounds_of(double first, double last) {
  std::vector<double> bounds;
  for (double bound = first; bound < 1.01 * last; bound *= 10) {
    bounds.push_back(bound);
    bounds.push_back(3 * bound);
  }
  return bounds;
}

}  // namespace

ServerMetrics::ServerMetrics()
    : first_token_s_(bounds_of(1e-3, 100)),
      token_gap_s_(bounds_of(1e-4, 10)),
      request_s_(bounds_of(1e-3, 1000)),
      queue_s_(bounds_of(1e-4, 100)) {}

void ServerMetrics::add(const std::string& route, const ReplyRecord& record) {
  const std::lock_guard lock(mutex_);
  ++requests_[{route, record.status}];
  if (!record.has_usage) return;
  const ReplyUsage& usage = record.usage;
  prompt_tokens_ += usage.prompt_tokens;
  cached_tokens_ += usage.cached_tokens;
  new_tokens_ += usage.new_tokens;
  request_s_.add(record.seconds);
  queue_s_.add(usage.queue_s);
  if (usage.new_tokens > 0) first_token_s_.add(usage.first_token_s);
  if (const std::int64_t gaps = usage.new_tokens - 1; gaps > 0)
    token_gap_s_.add((usage.last_token_s - usage.first_token_s) / static_cast<double>(gaps), gaps);
}

void ServerMetrics::write(ExpositionWriter& out) const {
  const std::lock_guard lock(mutex_);
  out.family("megatron_requests_total", "counter", "Requests by path and status.");
  for (const auto& [key, count] : requests_)
    out.sample(static_cast<double>(count),
               labels({{"path", key.first}, {"status", std::to_string(key.second)}}));
  out.counter("megatron_prompt_tokens_total", "Tokens of prompts.",
              static_cast<double>(prompt_tokens_));
  out.counter("megatron_prefix_cache_hits_total", "Tokens of prompts found in the prefix cache.",
              static_cast<double>(cached_tokens_));
  out.counter("megatron_generation_tokens_total", "Tokens sampled.",
              static_cast<double>(new_tokens_));
  out.histogram("megatron_time_to_first_token_seconds", "From a request to its first token.",
                first_token_s_);
  out.histogram("megatron_inter_token_latency_seconds",
                "Mean time between the tokens of a request, counted for each.", token_gap_s_);
  out.histogram("megatron_e2e_request_latency_seconds", "From a request to the end of its answer.",
                request_s_);
  out.histogram("megatron_request_queue_time_seconds", "Time in which a request was not computed.",
                queue_s_);
}

}  // namespace megatron
