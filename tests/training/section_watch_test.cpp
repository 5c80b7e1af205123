// Tests the limits of a run's sections and how they are calculated. The expected values follow
// nvidia-resiliency-ext 0.4 (TimeoutsCalc: the longest time over all ranks, times a safety factor,
// averaged with a limit that was calculated before) and Megatron-LM's ft_integration.py.
#include "megatron/training/resilience/section_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "megatron/base/files.h"
#include "megatron/config/fault_tolerance_config.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank_threads.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kNone = std::nullopt;

/// A watch whose clock and deadlines the test sees.
class WatchedRun {
 public:
  explicit WatchedRun(FaultToleranceConfig config, const fs::path& save = {}) {
    config.enable_ft_package = true;
    watch_ = std::make_unique<SectionWatch>(SectionWatchOptions{
        .config = std::move(config),
        .save = save,
        .set_deadline = [this](const Deadline& deadline) { deadline_ = deadline; },
        .clock_s = [this] { return now_s_; }});
  }
  SectionWatch& watch() { return *watch_; }
  void end() { watch_.reset(); }
  void pass(double seconds) { now_s_ += seconds; }
  void run_step(double seconds) {
    const SectionWatch::Scope step = watch_->enter_step();
    pass(seconds);
  }
  void save(double seconds) {
    {
      const SectionWatch::Scope section = watch_->enter(RunSection::checkpointing);
      pass(seconds);
    }
    watch_->record_save();
  }
  void calculate(bool is_at_end) { watch_->calculate({Axis{"world"}}, is_at_end); }
  const std::string& what() const { return deadline_.what; }
  const std::string& source() const { return deadline_.source; }
  double limit_s() const { return static_cast<double>(deadline_.limit.count()) / 1000; }
  const PerSection<std::optional<double>>& limits() const { return watch_->limits().seconds; }

 private:
  double now_s_ = 100;
  Deadline deadline_{.what = "nothing", .limit = milliseconds(-1)};
  std::unique_ptr<SectionWatch> watch_;
};

FaultToleranceConfig given() {
  return {.ft_num_warmup_iters = 2,
          .ft_rank_section_timeouts = "setup:600,step:180,checkpointing:420",
          .ft_rank_out_of_section_timeout = 300};
}

TEST(SectionWatch, LimitsEachSection) {
  WatchedRun run(given());
  run.watch().begin_setup();
  EXPECT_EQ(run.what(), "the section 'setup'");
  EXPECT_EQ(run.limit_s(), 600);
  for (int i = 0; i < 2; ++i) {
    const SectionWatch::Scope step = run.watch().enter_step();
    EXPECT_EQ(run.limit_s(), 0) << "the run warms up";
  }
  EXPECT_EQ(run.limit_s(), 300) << "after the warm-up";
  {
    const SectionWatch::Scope step = run.watch().enter_step();
    EXPECT_EQ(run.what(), "the section 'step'");
    EXPECT_EQ(run.limit_s(), 180);
    {
      const SectionWatch::Scope save = run.watch().enter(RunSection::checkpointing);
      EXPECT_EQ(run.what(), "the section 'checkpointing'");
      EXPECT_EQ(run.limit_s(), 420);
    }
    EXPECT_EQ(run.limit_s(), 180) << "the interrupted step continues";
  }
  EXPECT_EQ(run.what(), "what lies between the sections");
  EXPECT_EQ(run.limit_s(), 300);
  EXPECT_EQ(run.source(), "--ft-rank-out-of-section-timeout");
  {
    const SectionWatch::Scope end = run.watch().enter_end_of_step();
    EXPECT_EQ(run.limit_s(), 180);
    EXPECT_EQ(run.source(), "--ft-rank-section-timeouts");
  }
  run.end();
  EXPECT_EQ(run.limit_s(), 0);
}

TEST(SectionWatch, EachEvaluationWarmsUpAnew) {
  WatchedRun run(given());
  run.watch().begin_setup();
  for (int i = 0; i < 3; ++i) run.run_step(1);
  for (int i = 0; i < 2; ++i) {
    const SectionWatch::Evaluation evaluation(run.watch());
    run.run_step(1);
    run.run_step(1);
    const SectionWatch::Scope pass = run.watch().enter_step();
    EXPECT_EQ(run.limit_s(), 180);
  }
  {
    const SectionWatch::Evaluation evaluation(run.watch());
    const SectionWatch::Scope pass = run.watch().enter_step();
    EXPECT_EQ(run.limit_s(), 0);
  }
  const SectionWatch::Scope step = run.watch().enter_step();
  EXPECT_EQ(run.limit_s(), 180) << "training has warmed up";
}

TEST(SectionWatch, DoesNothingUnlessItIsAskedTo) {
  SectionWatch watch(
      SectionWatchOptions{.set_deadline = [](const Deadline&) { FAIL() << "a deadline"; }});
  watch.begin_setup();
  { const SectionWatch::Scope step = watch.enter_step(); }
  EXPECT_EQ(watch.calculate({Axis{"world"}}, true), "");
}

FaultToleranceConfig calculating() {
  return {.calc_ft_timeouts = true, .ft_num_warmup_iters = 1, .ft_safety_factor = 5};
}

TEST(SectionWatch, CalculatesWhatItHasSeenEnoughOf) {
  const TemporaryFolder folder;
  WatchedRun run(calculating(), folder.path());
  run.watch().begin_setup();
  run.pass(8);
  run.run_step(50);  // warms up
  for (int i = 0; i < 14; ++i) run.run_step(i == 6 ? 3 : 2);
  run.save(4);
  run.calculate(false);
  EXPECT_THAT(run.limits(), ElementsAre(kNone, kNone, 20, kNone)) << "15 steps are too few";
  run.run_step(1);
  run.watch().record_load();
  run.calculate(false);
  EXPECT_THAT(run.limits(), ElementsAre(40, 15, 20, kNone));
  run.pass(1.5);  // out of every section
  run.run_step(7);
  run.calculate(true);
  EXPECT_THAT(run.limits(), ElementsAre(40, 25, 20, 7.5)) << "(15 + 5 · 7) / 2 for the step";
}

TEST(SectionWatch, DoesNotMeasureAStepThatASaveInterrupts) {
  const TemporaryFolder folder;
  WatchedRun run(calculating(), folder.path());
  run.watch().begin_setup();
  for (int i = 0; i < 17; ++i) run.run_step(2);
  {
    const SectionWatch::Scope step = run.watch().enter_step();
    run.save(100);
    run.pass(2);
  }
  run.calculate(false);
  EXPECT_THAT(run.limits(), ElementsAre(kNone, 10, 500, kNone));
}

TEST(SectionWatch, KeepsCalculatedLimitsForLaterStarts) {
  const TemporaryFolder folder;
  FaultToleranceConfig config = calculating();
  config.ft_rank_section_timeouts = "setup:600,step:1";
  {
    WatchedRun run(config, folder.path());
    run.watch().begin_setup();
    for (int i = 0; i < 17; ++i) run.run_step(2);
    run.save(3);
    run.calculate(true);
  }
  EXPECT_EQ(read_file(folder.path() / "ft_state.json"),
            R"({"current_timeouts":{"section":{"section":{"setup":600.0,"step":10.0,)"
            R"("checkpointing":15.0},"out_of_section":null,)"
            R"("calculated_sections":["checkpointing","step"],)"
            R"("is_out_of_section_calculated":false}},)"
            R"("load":{"world_size":0,"num_microbatches":0}})"
            "\n");
  config.ft_rank_section_timeouts = "setup:500,step:1";
  WatchedRun run(config, folder.path());
  EXPECT_THAT(run.limits(), ElementsAre(500, 10, 15, kNone));
  EXPECT_EQ(run.watch().limits().text(),
            "setup 500 s, step 10 s (calculated), checkpointing 15 s (calculated), out of section "
            "none");
}

/// Fewer ranks have more to do in a step, and a larger batch too.
TEST(SectionWatch, ForgetsTheLimitsOfAnotherLoad) {
  const TemporaryFolder folder;
  FaultToleranceConfig config = calculating();
  config.ft_rank_section_timeouts = "setup:600";
  {
    WatchedRun run(config, folder.path());
    run.watch().begin_setup();
    EXPECT_FALSE(run.watch().set_load({8, 2}));
    for (int i = 0; i < 17; ++i) run.run_step(2);
    run.save(3);
    run.calculate(true);
  }
  {
    WatchedRun run(config, folder.path());
    EXPECT_FALSE(run.watch().set_load({8, 2}));
    EXPECT_THAT(run.limits(), ElementsAre(600, 10, 15, kNone));
    EXPECT_TRUE(run.watch().set_load({8, 4}));
    EXPECT_THAT(run.limits(), ElementsAre(600, kNone, 15, kNone)) << "a save is the same";
  }
  WatchedRun run(config, folder.path());
  EXPECT_TRUE(run.watch().set_load({4, 4}));
  EXPECT_THAT(run.limits(), ElementsAre(600, kNone, kNone, kNone));
}

TEST(SectionWatch, ReadsTheFileOnlyWhenItCalculates) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "ft_state.json") << "no file";
  const WatchedRun run(given(), folder.path());
  EXPECT_THAT(run.limits(), ElementsAre(600, 180, 420, 300));
}

TEST(SectionWatch, LimitsStayWithinReason) {
  const TemporaryFolder folder;
  FaultToleranceConfig config = calculating();
  config.ft_rank_out_of_section_timeout = 1e308;
  WatchedRun run(config, folder.path());
  run.watch().begin_setup();
  for (int i = 0; i < 17; ++i) run.run_step(0.001);
  run.save(1e300);
  run.calculate(false);
  EXPECT_THAT(run.limits(), ElementsAre(kNone, 5, 1e9, 1e9));
}

/// As nvidia-resiliency-ext 0.4 writes it (RankMonitorClient.state_dict()).
TEST(SectionWatch, ReadsTheFileOfThePeer) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "ft_state.json")
      << R"({"current_timeouts": {"section": {"section": {"setup": 35.5, "step": 4.25, )"
         R"("checkpointing": null}, "out_of_section": 7.5, "calculated_sections": ["setup", )"
         R"("step"], "is_out_of_section_calculated": true}}})";
  WatchedRun run(calculating(), folder.path());
  EXPECT_THAT(run.limits(), ElementsAre(35.5, 4.25, kNone, 7.5));
}

TEST(SectionWatch, SaysWhatIsWrongWithTheFile) {
  const TemporaryFolder folder;
  for (const char* text :
       {"[]", R"({"current_timeouts": 1})", R"({"current_timeouts": {"section": []}})",
        R"({"current_timeouts": {"section": {"section": {"step": -1}, "calculated_sections": )"
        R"(["step"]}}})",
        R"({"current_timeouts": {"section": {"out_of_section": "x", )"
        R"("is_out_of_section_calculated": true}}})",
        "{"}) {
    std::ofstream(folder.path() / "ft_state.json") << text;
    WatchedRun run(calculating(), folder.path());
    EXPECT_THAT(run.watch().file_problem(), HasSubstr("ft_state.json")) << text;
    EXPECT_THAT(run.limits(), ElementsAre(kNone, kNone, kNone, kNone));
  }
}

TEST(SectionWatch, TakesTheSlowestRank) {
  const TemporaryFolder folder;
  run_rank_threads(2, [&](Communicators& world) {
    const Axis axis{"world", world.rank(), 2, world.group({0, 1}, "world")};
    WatchedRun run(calculating(), folder.path());
    run.watch().begin_setup();
    for (int i = 0; i < 17; ++i) run.run_step(world.rank() == 0 ? 2 : 6);
    run.watch().calculate({axis}, false);
    EXPECT_THAT(run.limits(), ElementsAre(kNone, 30, kNone, kNone));
  });
}

}  // namespace
}  // namespace megatron
