#include "megatron/load_test/load.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <thread>

#include "megatron/base/format.h"
#include "megatron/base/progress_bar.h"

namespace megatron {
namespace {

using Clock = LoadClient::Clock;

ProgressBarOptions bar_of(const Load& load, const BenchServeOptions& options) {
  const double total = options.num_prompts ? static_cast<double>(*options.num_prompts)
                                           : std::ceil(*options.max_seconds);
  return {.title = load.name,
          .total = static_cast<std::uint64_t>(total),
          .unit = options.num_prompts ? "requests" : "s"};
}

/// Hands out the requests of a load and collects what clients saw of them. Thread-safe.
class LoadRun {
 public:
  LoadRun(const Load& load, const BenchServeOptions& options, const Trace& trace)
      : load_(load), options_(options), trace_(trace), progress_(bar_of(load, options)) {}

  /// Sends requests one after the other until none is left.
  void work() {
    LoadClient client(options_);
    std::int64_t index = 0;
    double due_s = 0;
    while (take(index, due_s)) {
      const std::string body = trace_.body(index);
      std::this_thread::sleep_until(begin_ + std::chrono::duration<double>(due_s));
      RequestRecord record = client.send(body, begin_);
      record.late_s = record.start_s - due_s;
      const std::lock_guard lock(mutex_);
      num_failed_ += record.error.empty() ? 0 : 1;
      records.push_back(std::move(record));
      progress_.update(
          options_.num_prompts ? records.size() : static_cast<std::uint64_t>(elapsed_s()),
          num_failed_ > 0 ? format("%zu failed", num_failed_) : "");
    }
  }

  std::vector<RequestRecord> records;

 private:
  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  /// Takes the next request. Returns false if there is none.
  bool take(std::int64_t& index, double& due_s) {
    const std::lock_guard lock(mutex_);
    due_s_ += trace_.gap(load_.arrivals, next_);
    if ((options_.num_prompts && next_ >= *options_.num_prompts) ||
        (options_.max_seconds && std::max(due_s_, elapsed_s()) >= *options_.max_seconds))
      return false;
    index = next_++;
    due_s = due_s_;
    return true;
  }

  const Load& load_;
  const BenchServeOptions& options_;
  const Trace& trace_;
  const Clock::time_point begin_ = Clock::now();
  std::mutex mutex_;
  std::int64_t next_ = 0;
  double due_s_ = 0;
  std::size_t num_failed_ = 0;
  ProgressBar progress_;
};

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
      ++m.errors[record.error];
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

std::vector<RequestRecord> run_load(const Load& load, const BenchServeOptions& options,
                                    const Trace& trace) {
  LoadRun run(load, options, trace);
  {
    std::vector<std::jthread> threads;
    const auto count = std::min(load.num_streams, options.num_prompts.value_or(load.num_streams));
    for (std::int64_t i = 0; i < count; ++i) threads.emplace_back([&run] { run.work(); });
  }
  return std::move(run.records);
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
