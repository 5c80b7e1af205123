// Loads of a server: when requests start, how many are in flight, and what came of it.
#pragma once

#include <functional>
#include <map>
#include <span>

#include "megatron/base/json_text.h"
#include "megatron/load_test/client.h"
#include "megatron/load_test/trace.h"

namespace megatron {

struct Load {
  std::string name;  ///< such as "poisson 4/s"
  Arrivals arrivals = {};
  std::int64_t num_streams = 1;  ///< requests in flight at most
};

/// The measurements of a load. Latencies are sorted, in seconds, and of completed requests only.
struct Measurements {
  Load load;
  std::size_t num_completed = 0;
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

/// Runs `load` on threads, one for each request in flight, and waits for all answers. Shows a
/// progress bar on a terminal.
std::vector<RequestRecord> run_load(const Load& load, const BenchServeOptions& options,
                                    const Trace& trace);

/// Measures the loads of the options' profile one after the other. `measure` runs each. Those of a
/// sweep depend on what it returns: rates between a synchronous load's and the throughput.
std::vector<Measurements> run_profile(const BenchServeOptions& options,
                                      const std::function<Measurements(const Load&)>& measure);

}  // namespace megatron
