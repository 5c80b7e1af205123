// Runs of several ranks, as threads, of which one takes longer for a part of the step.
#include "megatron/training/observability/stragglers/straggler_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <thread>

#include "megatron/parallel/rank_threads.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

using Flags = std::vector<std::string>;

/// Lengthens the scopes of one timer.
class Sleeper : public TimerListener {
 public:
  explicit Sleeper(std::string timer) : timer_(std::move(timer)) {}
  void on_start(std::string_view /*timer*/) override {}
  /// The monitor listens later than this and so measures the sleep.
  void on_stop(std::string_view timer) override {
    if (timer == timer_) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

 private:
  std::string timer_;
};

/// Trains with `ranks` ranks, of which rank 1 sleeps in each scope of `slow_timer`. Returns the log
/// of rank 0.
std::string log_of(std::int64_t ranks, const Flags& more, const std::string& slow_timer = "") {
  Flags flags{"--train-iters", "20", "--eval-iters", "0", "--global-batch-size", "8"};
  flags.insert(flags.end(), more.begin(), more.end());
  const RunConfig run = read_run(small_run::flags(flags), ranks);
  std::string log;
  run_rank_threads(ranks, [&](Communicators& communicators) {
    std::ostringstream out;
    Trainer trainer =
        set_up(run, out, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
    Sleeper sleeper(slow_timer);
    if (communicators.rank() == 1) trainer.timers.add_listener(sleeper);
    train(trainer, out);
    if (communicators.rank() == 0) log = out.str();
  });
  return log;
}

/// Returns the losses and norms of the log's lines.
std::string numbers_in(const std::string& log) {
  static const std::regex pattern("lm loss: [^ ]+|grad norm: [^ ]+");
  std::string numbers;
  for (std::sregex_iterator i(log.begin(), log.end(), pattern), end; i != end; ++i)
    numbers += i->str() + "\n";
  return numbers;
}

class SlowPartOfARank : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(SlowPartOfARank, IsNamedWithinTwentySteps) {
  const auto& [timer, part] = GetParam();
  const std::string log = log_of(4, {"--log-straggler"}, timer);
  EXPECT_THAT(log, ContainsRegex("straggler: rank 1 on [^ ]+ is slower than the 3 other ranks of "
                                 "pipeline stage 0: " +
                                 std::string(part) + " [0-9.]+ ms a step, "));
  EXPECT_THAT(log, Not(ContainsRegex("straggler: rank [023]")));
}

INSTANTIATE_TEST_SUITE_P(Parts, SlowPartOfARank,
                         testing::Values(std::pair{"batch-generator", "data"},
                                         std::pair{"forward-compute", "forward"},
                                         std::pair{"backward-compute", "backward"},
                                         std::pair{"optimizer", "optimizer"}));

// The other ranks wait for the slow one in every layer, and these waits are not theirs.
TEST(StragglerMonitor, WaitsInsideALayerAccuseNobody) {
  const std::string log =
      log_of(2, {"--log-straggler", "--tensor-model-parallel-size", "2"}, "forward-compute");
  EXPECT_THAT(log, HasSubstr("straggler: rank 1 on"));
  EXPECT_THAT(log, Not(HasSubstr("straggler: rank 0 on")));
}

TEST(StragglerMonitor, ReportsAtLogIntervalsAndAtTheEnd) {
  const std::string log =
      log_of(2, {"--log-straggler", "--log-interval", "10", "--train-iters", "23"});
  EXPECT_THAT(log, AllOf(HasSubstr("fastest and slowest ranks, iterations 2 to 10 | data: "),
                         HasSubstr("fastest and slowest ranks, iterations 11 to 20 | data: "),
                         HasSubstr("fastest and slowest ranks, iterations 21 to 23 | data: ")));
  EXPECT_THAT(log, ContainsRegex("forward: [0-9.]+ms/[01] .. [0-9.]+ms/[01] \\| backward: "));
}

TEST(StragglerMonitor, RanksOfDifferentStagesAreNotCompared) {
  const std::string log =
      log_of(2, {"--log-straggler", "--pipeline-model-parallel-size", "2"}, "forward-compute");
  EXPECT_THAT(log, HasSubstr("note: --log-straggler names no rank in this run"));
  EXPECT_THAT(log, Not(HasSubstr("straggler: rank")));
  EXPECT_THAT(log, HasSubstr("fastest and slowest ranks"));
}

TEST(StragglerMonitor, IsSilentUntilSwitchedOn) {
  const std::string log = log_of(
      4, {"--log-straggler", "--disable-straggler-on-startup", "--straggler-ctrlr-port", "61789"},
      "optimizer");
  EXPECT_THAT(log, Not(HasSubstr("straggler: rank")));
  EXPECT_THAT(log, Not(HasSubstr("fastest and slowest ranks")));
}

// Otherwise the traffic of a run grows with the square of its ranks.
TEST(StragglerMonitor, TimesGoToRankZeroOnly) {
  const RunConfig run = read_run(small_run::flags({"--train-iters", "3", "--eval-iters", "0",
                                                   "--global-batch-size", "8", "--log-straggler"}),
                                 4);
  run_rank_threads(4, [&](Communicators& communicators) {
    std::ostringstream out;
    Trainer trainer =
        set_up(run, out, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
    train(trainer, out);
    std::int64_t num_sent = 0, num_spread = 0;
    for (const CommCount& row : communicators.counters().take()) {
      if (row.operation == "send" && row.what == "text") num_sent += row.bytes;
      if (row.operation == "all_gather" && row.what == "step times") num_spread += row.bytes;
    }
    constexpr std::int64_t kBytes = 2 * 10 * 8;  // ten numbers of each step but the first
    EXPECT_EQ(num_sent, communicators.rank() == 0 ? 0 : kBytes);
    EXPECT_EQ(num_spread, 0);
  });
}

TEST(StragglerMonitor, ChangesNoNumber) {
  for (const Flags& layout : {Flags{}, Flags{"--tensor-model-parallel-size", "2",
                                             "--pipeline-model-parallel-size", "2"}}) {
    Flags watched = layout;
    watched.push_back("--log-straggler");
    const std::string plain = numbers_in(log_of(4, layout));
    EXPECT_EQ(numbers_in(log_of(4, watched)), plain);
    EXPECT_THAT(plain, HasSubstr("grad norm: "));
  }
}

}  // namespace
}  // namespace megatron
