#include "megatron/schedules/make_schedule.h"

#include <gmock/gmock.h>

#include <ctime>
#include <random>

#include "megatron/base/error.h"
#include "megatron/schedules/messages.h"
#include "megatron/schedules/simulate.h"
#include "megatron/schedules/validate.h"

namespace megatron {
namespace {

std::string described(const ScheduleRequest& request) {
  return request.name + ", " + std::to_string(request.num_ranks) + " ranks, " +
         std::to_string(request.num_chunks) + " chunks, " +
         std::to_string(request.num_microbatches) + " microbatches, group " +
         std::to_string(request.microbatch_group);
}

void expect_valid(const ScheduleRequest& request) {
  SCOPED_TRACE(described(request));
  for (const bool ahead : {false, true}) {
    EXPECT_EQ(validate_schedule(with_messages(make_schedule(request), ahead)), std::nullopt);
    EXPECT_EQ(validate_schedule(with_messages(make_forward_schedule(request), ahead), false),
              std::nullopt);
  }
}

std::vector<std::int64_t> chunk_counts(const std::string& name, std::int64_t most) {
  if (fixed_num_chunks(name) != 0) return {fixed_num_chunks(name)};
  std::vector<std::int64_t> counts;
  for (std::int64_t count = name == "interleaved" ? 2 : 1; count <= most; ++count)
    counts.push_back(count);
  return counts;
}

TEST(MakeSchedule, EverySmallScheduleIsValid) {
  for (const std::string& name : schedule_names()) {
    for (const std::int64_t chunks : chunk_counts(name, 3)) {
      for (std::int64_t ranks = 1; ranks <= 6; ++ranks) {
        for (std::int64_t microbatches = 1; microbatches <= 14; ++microbatches)
          expect_valid({name, ranks, chunks, microbatches});
      }
    }
  }
}

TEST(MakeSchedule, AnyGroupSizeIsValid) {
  for (const std::string name : {"interleaved", "combined-1f1b"}) {
    for (std::int64_t ranks = 1; ranks <= 5; ++ranks) {
      for (std::int64_t microbatches = 1; microbatches <= 13; ++microbatches) {
        for (std::int64_t group = ranks; group <= microbatches; ++group)
          expect_valid({name, ranks, 3, microbatches, group});
      }
    }
  }
}

TEST(MakeSchedule, RandomScheduleIsValid) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int i = 0; i < 120; ++i) {
    ScheduleRequest request{schedule_names()[draw(0, 7)], draw(1, 32), 1, draw(1, 128)};
    const std::vector<std::int64_t> chunks = chunk_counts(request.name, 8);
    request.num_chunks = chunks[draw(0, static_cast<std::int64_t>(chunks.size()) - 1)];
    request.microbatch_group =
        draw(0, 1) == 0
            ? 0
            : draw(request.num_ranks, std::max(request.num_ranks, request.num_microbatches));
    expect_valid(request);
  }
}

Simulation simulated(const ScheduleRequest& request, const StageCost& stage = {},
                     double joined = 1) {
  const Schedule schedule = with_messages(make_schedule(request));
  CostModel costs = uniform_costs(schedule, stage);
  costs.joined = joined;
  return simulate(schedule, costs);
}

double idle(const Simulation& run, std::int64_t rank) {
  return run.last_s[rank] - run.first_s[rank] - run.busy_s[rank];
}

double most_idle(const Simulation& run) {
  double most = 0;
  for (std::size_t rank = 0; rank < run.busy_s.size(); ++rank)
    most = std::max(most, idle(run, static_cast<std::int64_t>(rank)));
  return most;
}

double most_kept(const Simulation& run) {
  return *std::max_element(run.peak_activation.begin(), run.peak_activation.end());
}

constexpr StageCost kUneven{.forward_s = 1, .backward_input_s = 1.25, .backward_weight_s = 0.75};

TEST(MakeSchedule, GpipeAnd1f1bAreIdleAsTheirFormula) {
  for (const std::int64_t p : {1, 2, 4, 7}) {
    for (const std::int64_t m : {p, 2 * p, 5 * p + 1}) {
      EXPECT_DOUBLE_EQ(most_idle(simulated({"gpipe", p, 1, m}, kUneven)),
                       static_cast<double>(p - 1) * 3);
      EXPECT_DOUBLE_EQ(most_idle(simulated({"1f1b", p, 1, m}, kUneven)),
                       static_cast<double>(p - 1) * 3);
    }
  }
}

TEST(MakeSchedule, InterleavedIsIdleByTheTimeOfOneChunkARank) {
  for (const std::int64_t p : {2, 4, 7}) {
    for (const std::int64_t v : {2, 3, 5}) {
      const Simulation run = simulated({"interleaved", p, v, 3 * p}, kUneven);
      EXPECT_DOUBLE_EQ(most_idle(run), static_cast<double>(p - 1) * 3) << "chunks take 3";
      EXPECT_EQ(most_kept(run), static_cast<double>(p * v + p - 1))
          << "p(1 + (p − 1)/(p·v)) stages of v chunks";
    }
  }
}

TEST(MakeSchedule, ZeroBubbleIsIdleAsItsFormula) {
  for (const std::int64_t p : {2, 4, 8, 13}) {
    for (const std::int64_t m : {2 * p, 4 * p + 1}) {
      EXPECT_EQ(most_idle(simulated({"zb-h1", p, 1, m})), static_cast<double>(p - 1))
          << "(p − 1)(F + B − W)";
      EXPECT_EQ(most_idle(simulated({"zb-h2", p, 1, m})), 0) << "(p − 1)(F + B − 2W)";
      EXPECT_EQ(most_idle(simulated({"zb-v", p, 2, m})), 0);
    }
  }
}

TEST(MakeSchedule, ZbVIsBelowAThirdOf1f1b) {
  for (const std::int64_t p : {4, 8}) {
    const Simulation zb_v = simulated({"zb-v", p, 2, 2 * p}),
                     one_f_one_b = simulated({"1f1b", p, 1, 2 * p});
    EXPECT_LT(zb_v.total_bubble(), one_f_one_b.total_bubble() / 3);
    EXPECT_LE(most_kept(zb_v), 2 * most_kept(one_f_one_b)) << "in chunks of half a stage";
  }
}

/// Returns (P/2 − 1)(F&B + B − 3W) with P = 2p stages, where B is the whole backward.
double dualpipe_v_idle(std::int64_t p, const StageCost& stage, double joined) {
  const double backward = stage.backward_input_s + stage.backward_weight_s;
  return static_cast<double>(p - 1) *
         (joined * (stage.forward_s + backward) + backward - 3 * stage.backward_weight_s);
}

TEST(MakeSchedule, DualPipeVIsIdleAsItsFormula) {
  for (const std::int64_t p : {2, 4, 8}) {
    for (const double weight : {1.0, 0.5}) {
      const StageCost stage{.backward_weight_s = weight};
      const Simulation run = simulated({"dualpipe-v", p, 2, 4 * p}, stage);
      EXPECT_DOUBLE_EQ(most_idle(run), dualpipe_v_idle(p, stage, 1));
      EXPECT_EQ(most_kept(run), static_cast<double>(2 * p + 1)) << "P + 1";
      const double joined = 0.75;
      EXPECT_LE(most_idle(simulated({"dualpipe-v", p, 2, 4 * p}, stage, joined)),
                dualpipe_v_idle(p, stage, joined))
          << "the formula takes no pair apart";
    }
  }
}

TEST(MakeSchedule, Combined1f1bIsBusyAs1f1bIs) {
  for (const std::int64_t p : {2, 4, 7}) {
    for (const std::int64_t v : {1, 3})
      EXPECT_DOUBLE_EQ(most_idle(simulated({"combined-1f1b", p, v, 4 * p}, kUneven)),
                       static_cast<double>(p - 1) * 3);
  }
}

TEST(MakeSchedule, KeepsWhatItsFormulaSays) {
  const std::int64_t p = 6, m = 20;
  const Simulation one_f_one_b = simulated({"1f1b", p, 1, m}),
                   combined = simulated({"combined-1f1b", p, 1, m});
  for (std::int64_t rank = 0; rank < p; ++rank) {
    EXPECT_EQ(one_f_one_b.peak_activation[rank], static_cast<double>(p - rank));
    EXPECT_EQ(combined.peak_activation[rank], static_cast<double>(2 * (p - rank)));
    EXPECT_EQ(simulated({"gpipe", p, 1, m}).peak_activation[rank], static_cast<double>(m));
    EXPECT_EQ(simulated({"zb-h1", p, 1, m}).peak_activation[rank], static_cast<double>(p));
    EXPECT_EQ(simulated({"zb-h2", p, 1, m}).peak_activation[rank], static_cast<double>(2 * p - 1));
    EXPECT_EQ(simulated({"zb-v", p, 2, m}).peak_activation[rank], static_cast<double>(2 * p));
  }
}

/// F(k + 1) may be joined with B(k), so two losses may be pending.
TEST(MakeSchedule, OnlyGpipeKeepsEveryLossPending) {
  for (const std::string& name : schedule_names()) {
    for (const std::int64_t p : {1, 2, 4, 7}) {
      for (const std::int64_t chunks : chunk_counts(name, 3)) {
        for (const std::int64_t m : {2, 8, 21}) {
          const ScheduleRequest request{name, p, chunks, m};
          SCOPED_TRACE(described(request));
          const std::int64_t most = max_pending_losses(with_messages(make_schedule(request)));
          if (name == "gpipe") {
            EXPECT_EQ(most, m);
          } else if (name == "combined-1f1b" || name == "dualpipe-v") {
            EXPECT_LE(most, 2);
          } else {
            EXPECT_EQ(most, 1);
          }
        }
      }
    }
  }
}

TEST(MakeSchedule, MoreMemoryIsNeverSlower) {
  for (std::int64_t p = 1; p <= 8; ++p) {
    for (std::int64_t m = 1; m <= 20; ++m) {
      SCOPED_TRACE(std::to_string(p) + " ranks, " + std::to_string(m) + " microbatches");
      const Simulation h1 = simulated({"zb-h1", p, 1, m}), h2 = simulated({"zb-h2", p, 1, m}),
                       one_f_one_b = simulated({"1f1b", p, 1, m});
      EXPECT_LE(h2.makespan_s, h1.makespan_s);
      EXPECT_LE(most_idle(h2), most_idle(h1));
      EXPECT_LE(h1.makespan_s, one_f_one_b.makespan_s);
    }
  }
}

TEST(MakeSchedule, InterleavedOrderByHand) {
  using enum StepKind;
  const Schedule schedule = make_schedule({"interleaved", 2, 2, 4});
  const std::vector<ScheduleStep> first = {
      {forward, 0, 0},  {forward, 1, 0},  {forward, 0, 1},  {forward, 1, 1},
      {forward, 2, 0},  {backward, 0, 1}, {forward, 3, 0},  {backward, 1, 1},
      {forward, 2, 1},  {backward, 0, 0}, {forward, 3, 1},  {backward, 1, 0},
      {backward, 2, 1}, {backward, 3, 1}, {backward, 2, 0}, {backward, 3, 0}};
  const std::vector<ScheduleStep> last = {
      {forward, 0, 0}, {forward, 1, 0},  {forward, 0, 1},  {backward, 0, 1},
      {forward, 1, 1}, {backward, 1, 1}, {forward, 2, 0},  {backward, 0, 0},
      {forward, 3, 0}, {backward, 1, 0}, {forward, 2, 1},  {backward, 2, 1},
      {forward, 3, 1}, {backward, 3, 1}, {backward, 2, 0}, {backward, 3, 0}};
  EXPECT_EQ(schedule.ranks[0], first);
  EXPECT_EQ(schedule.ranks[1], last);
}

TEST(MakeSchedule, OnlyTheWarmUpIsNotJoined) {
  const std::int64_t p = 3, v = 2, m = 6;
  const Schedule schedule = make_schedule({"combined-1f1b", p, v, m});
  for (std::int64_t rank = 0; rank < p; ++rank) {
    const std::vector<ScheduleStep>& steps = schedule.ranks[rank];
    const auto joined = std::count_if(steps.begin(), steps.end(),
                                      [](const ScheduleStep& step) { return step.joins_next; });
    EXPECT_EQ(joined, m * v - (2 * (p - rank - 1) + (v - 1) * p + 1));
  }
}

struct BadRequest {
  ScheduleRequest request;
  std::vector<std::string> words;
};

TEST(MakeSchedule, BadNumbersNameTheFlagAndTheFix) {
  const std::vector<BadRequest> table = {
      {{"2f2b", 4, 1, 8}, {"--pipeline-schedule", "2f2b", "zb-h1", "dualpipe-v"}},
      {{"1f1b", 4, 2, 8},
       {"--pipeline-schedule 1f1b needs 1 chunk per rank, got 2", "interleaved"}},
      {{"zb-v", 4, 1, 8},
       {"--pipeline-schedule zb-v needs 2 chunks per rank, got 1",
        "--num-virtual-stages-per-pipeline-rank 2"}},
      {{"dualpipe-v", 4, 4, 8}, {"--pipeline-schedule dualpipe-v needs 2 chunks per rank, got 4"}},
      {{"interleaved", 4, 1, 8},
       {"--pipeline-schedule interleaved needs at least 2 chunks", "1f1b"}},
      {{"interleaved", 4, 2, 8, 3},
       {"--microbatch-group-size-per-virtual-pipeline-stage 3 does not fit",
        "on 4 pipeline ranks with 8 microbatches", "4 to 8"}},
      {{"combined-1f1b", 4, 2, 8, 2},
       {"--microbatch-group-size-per-virtual-pipeline-stage", "2", "4 to 8"}},
      {{"gpipe", 4, 1, 0},
       {"--pipeline-schedule gpipe needs at least 1 microbatch", "0", "--global-batch-size"}},
      {{"1f1b", 0, 1, 8},
       {"--pipeline-schedule 1f1b needs at least 1 pipeline rank", "0",
        "--pipeline-model-parallel-size"}},
  };
  for (const BadRequest& bad : table) {
    SCOPED_TRACE(described(bad.request));
    for (const auto make : {make_schedule, make_forward_schedule}) {
      try {
        make(bad.request);
        ADD_FAILURE() << "no error";
      } catch (const UserError& error) {
        for (const std::string& word : bad.words)
          EXPECT_THAT(error.what(), ::testing::HasSubstr(word));
      }
    }
  }
}

TEST(MakeSchedule, AGroupLargerThanTheBatchIsAMistakeOfTrainingOnly) {
  try {
    make_schedule({"combined-1f1b", 4, 2, 8, 9});
    ADD_FAILURE() << "no error";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("with 8 microbatches\n  fix: use 4 to 8"));
  }
  EXPECT_EQ(make_forward_schedule({"interleaved", 4, 2, 8, 9}).ranks,
            make_forward_schedule({"interleaved", 4, 2, 8, 8}).ranks);
  EXPECT_EQ(make_forward_schedule({"interleaved", 4, 2, 3, 9}).ranks,
            make_forward_schedule({"interleaved", 4, 2, 3, 4}).ranks);
}

TEST(MakeSchedule, LargeOnesAreMadeAndProvedWithinASecond) {
  for (const std::string& name : schedule_names()) {
    const std::clock_t start = std::clock();  // CPU time of this process, independent of other load
    EXPECT_EQ(validate_schedule(
                  with_messages(make_schedule({name, 64, chunk_counts(name, 4).back(), 512}))),
              std::nullopt);
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 1) << name;
  }
}

TEST(MakeSchedule, NamesKnowTheirChunks) {
  EXPECT_THAT(schedule_names(),
              ::testing::ElementsAre("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v",
                                     "dualpipe-v", "combined-1f1b"));
  EXPECT_EQ(chunk_order_of("zb-v"), ChunkOrder::v);
  EXPECT_EQ(chunk_order_of("dualpipe-v"), ChunkOrder::v);
  EXPECT_EQ(chunk_order_of("interleaved"), ChunkOrder::loop);
  EXPECT_EQ(fixed_num_chunks("zb-v"), 2);
  EXPECT_EQ(fixed_num_chunks("zb-h2"), 1);
  EXPECT_EQ(fixed_num_chunks("interleaved"), 0);
  EXPECT_THROW(chunk_order_of("auto"), UserError);
}

}  // namespace
}  // namespace megatron
