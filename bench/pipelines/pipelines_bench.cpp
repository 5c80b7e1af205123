// Runs every schedule on 4 and 8 ranks (threads) whose stages only sleep, and compares bubble,
// makespan and activations with the simulator's.
//   pipelines_bench [--rounds N] [--step-ms T] [--json FILE]     (on a busy machine: chrt --rr 10
//   pipelines_bench …)
#include <sched.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/schedules/make_schedule.h"
#include "megatron/schedules/messages.h"
#include "program.h"
#include "support/sleeping_pipeline.h"

namespace megatron {
namespace {

struct Options {
  int rounds = 3;
  double step_s = 0.020;  ///< duration of F, B and W of one rank and one microbatch
  std::string json;
};

struct Case {
  std::string schedule;
  std::int64_t ranks = 4, microbatches = 8;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::int64_t ranks : {4, 8}) {
    for (const std::int64_t rounds : {2, 4}) {
      for (const std::string& name : schedule_names())
        cases.push_back({name, ranks, rounds * ranks});
    }
  }
  return cases;
}

Schedule schedule_of(const Case& one) {
  const std::int64_t fixed = fixed_num_chunks(one.schedule);
  return with_messages(make_schedule({.name = one.schedule,
                                      .num_ranks = one.ranks,
                                      .num_chunks = fixed > 0 ? fixed : 2,
                                      .num_microbatches = one.microbatches}));
}

CostModel costs_of(const Schedule& schedule, double step_s) {
  const double seconds = step_s / static_cast<double>(schedule.num_chunks);
  const double activation = 1 / static_cast<double>(schedule.num_chunks);
  return uniform_costs(schedule, {.forward_s = seconds,
                                  .backward_input_s = seconds,
                                  .backward_weight_s = seconds,
                                  .activation = activation,
                                  .weight_gradient = activation / 2});
}

/// Returns the largest difference of a rank's bubble, or of the bubble of all ranks.
double largest_difference(const PipelineTimes& measured, const PipelineTimes& simulated) {
  double most = std::abs(measured.total_bubble() - simulated.total_bubble());
  for (std::size_t rank = 0; rank < measured.busy_s.size(); ++rank) {
    const auto at = static_cast<std::int64_t>(rank);
    most = std::max(most, std::abs(measured.bubble(at) - simulated.bubble(at)));
  }
  return most;
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  std::array<char, 11> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", std::localtime(&now));
  return text.data();
}

/// Returns the CPU's name as the kernel reports it, or "".
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name"))
      return line.substr(std::min(line.find(": ") + 2, line.size()));
  }
  return {};
}

double load() {
  double average = 0;
  return getloadavg(&average, 1) == 1 ? average : 0;
}

OrderedJson measure(const Case& one, const Options& options) {
  const Schedule schedule = schedule_of(one);
  const CostModel costs = costs_of(schedule, options.step_s);
  const Simulation simulated = simulate(schedule, costs);
  OrderedJson rounds = OrderedJson::array();
  for (int i = 0; i < options.rounds; ++i) {
    const SleepingRun run = run_sleeping(schedule, costs);
    rounds.push_back({{"bubble", run.times.total_bubble()},
                      {"largest_difference", largest_difference(run.times, simulated)},
                      {"makespan_ms", run.times.makespan_s * 1e3},
                      {"peak_activation", *std::ranges::max_element(run.peak_activation)},
                      {"load", load()}});
  }
  std::sort(rounds.begin(), rounds.end(), [](const OrderedJson& a, const OrderedJson& b) {
    return a["makespan_ms"] < b["makespan_ms"];
  });
  return {{"schedule", one.schedule},
          {"ranks", one.ranks},
          {"chunks", schedule.num_chunks},
          {"microbatches", one.microbatches},
          {"simulated",
           {{"bubble", simulated.total_bubble()},
            {"makespan_ms", simulated.makespan_s * 1e3},
            {"peak_activation", *std::ranges::max_element(simulated.peak_activation)}}},
          {"rounds", rounds}};
}

void print(const OrderedJson& one) {
  const OrderedJson &simulated = one["simulated"], &rounds = one["rounds"];
  const OrderedJson& median = rounds[rounds.size() / 2];
  const double bubble = median["bubble"], expected = simulated["bubble"],
               makespan = median["makespan_ms"], ideal = simulated["makespan_ms"];
  std::printf("%-14s %5ld %6ld %4ld %8.1f%% %9.1f%% %+7.1f %9.1f %9.3f %9.2f %9.2f\n",
              one["schedule"].get<std::string>().c_str(), one["ranks"].get<long>(),
              one["chunks"].get<long>(), one["microbatches"].get<long>(), 100 * bubble,
              100 * expected, 100 * (bubble - expected),
              100 * median["largest_difference"].get<double>(), makespan / ideal,
              median["peak_activation"].get<double>(), simulated["peak_activation"].get<double>());
  std::fflush(stdout);
}

Options parse_options(const std::vector<std::string>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    if (i + 1 == words.size()) throw std::invalid_argument(words[i] + " needs a value");
    if (words[i] == "--rounds") {
      options.rounds = bench::parse_count(words[i], words[i + 1]);
    } else if (words[i] == "--step-ms") {
      options.step_s = std::stod(words[i + 1]) / 1e3;
    } else if (words[i] == "--json") {
      options.json = words[i + 1];
    } else {
      throw std::invalid_argument(
          "usage: pipelines_bench [--rounds N] [--step-ms T] [--json FILE]");
    }
  }
  return options;
}

void run(const std::vector<std::string>& words) {
  const Options options = parse_options(words);
  OrderedJson cases = OrderedJson::array();
  std::printf(
      "medians of %d rounds; F, B and W of a rank: %.1f ms each a microbatch; points: differences "
      "of bubbles, of all ranks and at most\n"
      "%-14s %5s %6s %4s %9s %10s %7s %9s %9s %9s %9s\n",
      options.rounds, options.step_s * 1e3, "schedule", "ranks", "chunks", "mb", "bubble",
      "simulated", "points", "at most", "makespan", "memory", "simulated");
  for (const Case& one : all_cases()) {
    cases.push_back(measure(one, options));
    print(cases.back());
  }
  if (options.json.empty()) return;
  const OrderedJson result{{"date", date()},
                           {"cpu", cpu_name()},
                           {"cores", std::thread::hardware_concurrency()},
                           {"real_time_priority", sched_getscheduler(0) != SCHED_OTHER},
                           {"step_ms", options.step_s * 1e3},
                           {"cases", cases}};
  bench::write(options.json, result.dump(1));
}

}  // namespace
}  // namespace megatron

int main(int count, char** words) { return megatron::bench::run_main(count, words, megatron::run); }
