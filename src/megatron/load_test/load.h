// Loads of a server: when requests start, how many are in flight, and what came of it.
#pragma once

#include <functional>
#include <map>
#include <span>

#include "megatron/base/json_text.h"
#include "megatron/load_test/trace.h"

namespace megatron {

/// What a client saw of one request. Times are seconds after the load began.
struct RequestRecord {
  double start_s = 0, first_s = 0, end_s = 0;  ///< it was sent, its first token came, its last one
  double late_s = 0;                           ///< between the time when it was due and its start
  std::vector<double> gaps_s;                  ///< between its tokens
  std::int64_t prompt_tokens = 0, output_tokens = 0;
  std::string error;  ///< why it failed, such as "HTTP 429: the queue is full"; "": it did not
};

struct Load {
  std::string name;  ///< such as "poisson 4/s"
  Arrivals arrivals = {};
  std::int64_t num_streams = 1;  ///< requests in flight at most
};

/// The measurements of a load. Latencies are sorted, in seconds, and of completed requests only.
struct Measurements {
  Load load;
  std::size_t num_completed = 0, num_failed = 0;
  std::map<std::string, std::size_t> errors;  ///< how many requests failed, by error
  double duration_s = 0;                      ///< from the first start to the last end
  std::int64_t input_tokens = 0, output_tokens = 0;
  std::vector<double> first_token, inter_token, end_to_end;  ///< from the start of a request on
  std::vector<double> late_start;  ///< of requests that are due at times of their own

  double per_second(double count) const { return duration_s > 0 ? count / duration_s : 0; }
};

Measurements measure_records(const Load& load, std::span<const RequestRecord> records);

/// Returns the value below which `share` of the sorted numbers lie, interpolated linearly as NumPy
/// does; 0 if there are none.
double quantile(const std::vector<double>& sorted, double share);

/// Returns the first model that the server lists. Throws a UserError if it does not answer.
std::string first_model(const BenchServeOptions& options);
/// Returns the ids of a text; empty if the server has no /tokenize.
std::vector<std::int64_t> tokenize(const BenchServeOptions& options, const std::string& text);

/// Runs `load` on threads, each with a connection for one request in flight, and waits for all
/// answers. Without usage in an answer, its chunks count as tokens. Shows a progress bar on a
/// terminal.
std::vector<RequestRecord> run_load(const Load& load, const BenchServeOptions& options,
                                    const Trace& trace);

/// Measures the loads of the options' profile one after the other. `measure` runs each. Those of a
/// sweep depend on what it returns: rates between a synchronous load's and the throughput.
std::vector<Measurements> run_profile(const BenchServeOptions& options,
                                      const std::function<Measurements(const Load&)>& measure);

}  // namespace megatron
