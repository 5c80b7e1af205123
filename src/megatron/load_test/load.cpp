#include "megatron/load_test/load.h"

#include <algorithm>
#include <cmath>

#include "megatron/base/format.h"

namespace megatron {
namespace {

Load load_of(const BenchServeOptions& options, const std::string& profile, double rate) {
  if (profile == "synchronous") return {profile};
  if (profile == "concurrent")
    return {format("%.0f concurrent", rate), {}, static_cast<std::int64_t>(rate)};
  if (profile == "throughput" || std::isinf(rate))
    return {"throughput", {}, options.max_concurrency};
  Arrivals arrivals{.rate = rate};
  if (profile == "poisson") arrivals.burstiness = options.burstiness;
  return {format("%s %.4g/s", profile.c_str(), rate), arrivals, options.max_concurrency};
}

}  // namespace

Measurements measure_records(const Load& load, std::span<const RequestRecord> records) {
  Measurements m{.load = load};
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  for (const RequestRecord& record : records) {
    begin = std::min(begin, record.start_s);
    end = std::max(end, record.end_s);
    if (!record.error.empty()) {
      ++m.errors[record.error], ++m.num_failed;
      continue;
    }
    ++m.num_completed;
    m.input_tokens += record.prompt_tokens;
    m.output_tokens += record.output_tokens;
    m.first_token.push_back(record.first_s - record.start_s);
    m.end_to_end.push_back(record.end_s - record.start_s);
    if (!std::isinf(load.arrivals.rate)) m.late_start.push_back(record.late_s);
    m.inter_token.insert(m.inter_token.end(), record.gaps_s.begin(), record.gaps_s.end());
  }
  for (auto* times : {&m.first_token, &m.inter_token, &m.end_to_end, &m.late_start})
    std::ranges::sort(*times);
  m.duration_s = std::max(0.0, end - begin);
  return m;
}

double quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  return std::lerp(sorted[below], sorted[std::min(below + 1, sorted.size() - 1)],
                   at - std::floor(at));
}

std::vector<Measurements> run_profile(const BenchServeOptions& options,
                                      const std::function<Measurements(const Load&)>& measure) {
  std::vector<Measurements> measured;
  const auto add = [&](const std::string& profile, double rate) {
    measured.push_back(measure(load_of(options, profile, rate)));
    return measured.back().per_second(static_cast<double>(measured.back().num_completed));
  };
  if (options.profile == "sweep") {
    constexpr double kLoads = 10;
    const double steps = (options.rates.empty() ? kLoads : options.rates[0]) - 2;
    const double least = add("synchronous", 0), most = add("throughput", 0);
    for (double step = 1; step <= steps && most > least; ++step)
      add("constant", std::lerp(least, most, step / steps));
  } else if (options.rates.empty()) {
    add(options.profile, 0);
  } else {
    for (const double rate : options.rates) add(options.profile, rate);
  }
  return measured;
}

}  // namespace megatron
