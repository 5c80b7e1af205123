#include "megatron/schedules/validate.h"

#include <gmock/gmock.h>

#include <random>

#include "megatron/schedules/make_schedule.h"
#include "megatron/schedules/messages.h"
#include "schedules/naive_run.h"

namespace megatron {
namespace {

using enum StepKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Optional;
using Steps = std::vector<ScheduleStep>;

/// Returns a schedule for two ranks and two microbatches.
Schedule two_ranks() {
  return {.name = "by hand",
          .num_ranks = 2,
          .num_chunks = 1,
          .num_microbatches = 2,
          .order = ChunkOrder::loop,
          .ranks = {{{forward, 0},
                     {send_forward, 0},
                     {forward, 1},
                     {send_forward, 1},
                     {recv_backward, 0},
                     {backward, 0},
                     {recv_backward, 1},
                     {backward, 1}},
                    {{recv_forward, 0},
                     {forward, 0},
                     {backward, 0},
                     {send_backward, 0},
                     {recv_forward, 1},
                     {forward, 1},
                     {backward, 1},
                     {send_backward, 1}}}};
}

struct Mistake {
  std::string what;
  void (*make)(Schedule&);
  std::vector<std::string> words;
};

TEST(ProblemOf, NamesRankStepAndMistake) {
  ASSERT_EQ(validate_schedule(two_ranks()), std::nullopt);
  const std::vector<Mistake> table = {
      {"a rank too few",
       [](Schedule& s) { s.ranks.pop_back(); },
       {"steps of 1 ranks instead of 2"}},
      {"a V of one chunk",
       [](Schedule& s) { s.order = ChunkOrder::v; },
       {"2 chunks per rank, not 1"}},
      {"no such microbatch",
       [](Schedule& s) { s.ranks[0][2].microbatch = 2; },
       {"rank 0, step 2 (F of microbatch 2, chunk 0)", "no such microbatch"}},
      {"no such chunk",
       [](Schedule& s) { s.ranks[1][1].chunk = 1; },
       {"rank 1, step 1", "no such chunk"}},
      {"a step twice",
       [](Schedule& s) { s.ranks[0][2].microbatch = 0; },
       {"rank 0, step 2 (F of microbatch 0, chunk 0)", "already run"}},
      {"input not received",
       [](Schedule& s) { std::swap(s.ranks[1][0], s.ranks[1][1]); },
       {"rank 1, step 0 (F of", "input has not been received"}},
      {"gradient not received",
       [](Schedule& s) { std::swap(s.ranks[0][4], s.ranks[0][5]); },
       {"rank 0, step 4 (BW of", "output gradient has not been"}},
      {"backward before forward",
       [](Schedule& s) { std::swap(s.ranks[1][1], s.ranks[1][2]); },
       {"rank 1, step 1 (BW", "its forward has not run"}},
      {"sent before computed",
       [](Schedule& s) { std::swap(s.ranks[0][0], s.ranks[0][1]); },
       {"rank 0, step 0 (send F", "has not been computed"}},
      {"sent past the end",
       [](Schedule& s) {
         s.ranks[1].push_back({send_forward, 0});
       },
       {"rank 1, step 8 (send F", "no message is needed there"}},
      {"W without B",
       [](Schedule& s) { s.ranks[1][2].kind = backward_weight; },
       {"rank 1, step 2 (W of", "its B has not run"}},
      {"B without W",
       [](Schedule& s) { s.ranks[1][6].kind = backward_input; },
       {"rank 1", "W of microbatch 1, chunk 0 is missing"}},
      {"a step missing",
       [](Schedule& s) { s.ranks[1].pop_back(); },
       {"rank 1", "7 steps", "send B of microbatch 1, chunk 0 is missing"}},
      {"joined with a forward",
       [](Schedule& s) { s.ranks[0][0].joins_next = true; },
       {"rank 0, step 0", "not a backward"}},
      {"joined with its own",
       [](Schedule& s) { s.ranks[1][1].joins_next = true; },
       {"rank 1, step 1 (F", "its own microbatch"}},
      {"joined backward",
       [](Schedule& s) { s.ranks[1][2].joins_next = true; },
       {"rank 1, step 2 (BW", "only a forward"}},
      {"receives exchanged",
       [](Schedule& s) {
         s.ranks[1] = {{recv_forward, 1},  {recv_forward, 0}, {forward, 0},  {backward, 0},
                       {send_backward, 0}, {forward, 1},      {backward, 1}, {send_backward, 1}};
       },
       {"rank 1, step 0 (recv F of microbatch 1, chunk 0)",
        "rank 0 sends send F of microbatch 0, chunk 0 first, in its step 1"}},
      {"weight gradients out of order",
       [](Schedule& s) {
         s.ranks[0] = {{forward, 0},       {send_forward, 0},  {forward, 1},  {send_forward, 1},
                       {recv_backward, 0}, {recv_backward, 1}, {backward, 1}, {backward, 0}};
       },
       {"rank 0, step 6 (BW of microbatch 1, chunk 0)", "microbatch order"}},
      {"a deadlock",
       [](Schedule& s) {
         s.ranks[0] = {{forward, 0}, {recv_backward, 0}, {backward, 0},      {send_forward, 0},
                       {forward, 1}, {send_forward, 1},  {recv_backward, 1}, {backward, 1}};
       },
       {"rank 0, step 2 (BW of microbatch 0, chunk 0)",
        "waits forever for send B of microbatch 0, chunk 0 of rank 1",
        "rank 1, step 1 (F of microbatch 0, chunk 0)"}},
  };
  for (const Mistake& mistake : table) {
    SCOPED_TRACE(mistake.what);
    Schedule schedule = two_ranks();
    mistake.make(schedule);
    const std::optional<std::string> problem = validate_schedule(schedule);
    for (const std::string& word : mistake.words) EXPECT_THAT(problem, Optional(HasSubstr(word)));
  }
}

TEST(ProblemOf, APairStartsOnlyWithBothInputs) {
  // Unjoined, rank 1 would send its backward of microbatch 0 before it needs microbatch 1. Joined,
  // each rank waits for the other.
  Schedule schedule = two_ranks();
  schedule.ranks[0] = {{forward, 0},  {send_forward, 0}, {recv_backward, 0}, {forward, 1, 0, true},
                       {backward, 0}, {send_forward, 1}, {recv_backward, 1}, {backward, 1}};
  schedule.ranks[1] = {{recv_forward, 0},     {forward, 0},      {recv_forward, 1},
                       {forward, 1, 0, true}, {backward, 0},     {send_backward, 0},
                       {backward, 1},         {send_backward, 1}};
  EXPECT_THAT(validate_schedule(schedule),
              Optional(AllOf(HasSubstr("rank 0, step 3"), HasSubstr("waits forever"))));
  schedule.ranks[0] = two_ranks().ranks[0];
  EXPECT_EQ(validate_schedule(schedule), std::nullopt);
}

TEST(ProblemOf, AnEvaluationHasNoBackward) {
  const Schedule forward_only = with_messages(make_forward_schedule({"1f1b", 3, 1, 4}));
  EXPECT_EQ(validate_schedule(forward_only, false), std::nullopt);
  EXPECT_THAT(validate_schedule(forward_only),
              Optional(HasSubstr("BW of microbatch 0, chunk 0 is missing")));
  EXPECT_THAT(validate_schedule(with_messages(make_schedule({"1f1b", 3, 1, 4})), false),
              Optional(HasSubstr("an evaluation has no backward")));
}

class Mutations : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<ScheduleRequest> requests() {
    const std::string name = GetParam();
    const std::int64_t chunks = fixed_num_chunks(name) != 0 ? fixed_num_chunks(name) : 2;
    return {{name, 2, chunks, 3}, {name, 3, chunks, 5}, {name, 4, chunks, 9}};
  }
};

TEST_P(Mutations, EveryStepCounts) {
  for (const ScheduleRequest& request : requests()) {
    const Schedule schedule = with_messages(make_schedule(request));
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
        Schedule dropped = schedule, doubled = schedule;
        dropped.ranks[rank].erase(dropped.ranks[rank].begin() + static_cast<std::ptrdiff_t>(i));
        ASSERT_NE(validate_schedule(dropped), std::nullopt)
            << "without step " << i << " of rank " << rank;
        doubled.ranks[rank].push_back(schedule.ranks[rank][i]);
        ASSERT_NE(validate_schedule(doubled), std::nullopt)
            << "step " << i << " of rank " << rank << " again at the end";
      }
    }
  }
}

TEST_P(Mutations, ExchangedReceivesOfAPairAreFound) {
  const Schedule schedule = with_messages(make_schedule(requests().back()));
  for (std::int64_t rank = 0; rank < schedule.num_ranks; ++rank) {
    std::map<std::int64_t, std::size_t> last;  // the last receive so far, by sender
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const ScheduleStep& step = schedule.ranks[rank][i];
      if (step.kind != recv_forward && step.kind != recv_backward) continue;
      const std::int64_t sender = schedule.rank_of(schedule.stage_of(rank, step.chunk) +
                                                   (step.kind == recv_forward ? -1 : 1));
      if (last.contains(sender)) {
        Schedule exchanged = schedule;
        std::swap(exchanged.ranks[rank][i], exchanged.ranks[rank][last[sender]]);
        ASSERT_NE(validate_schedule(exchanged), std::nullopt)
            << "steps " << last[sender] << " and " << i << " of rank " << rank;
      }
      last[sender] = i;
    }
  }
}

/// Makes one small change, which may or may not break the schedule.
void mutate(Schedule& schedule, std::mt19937& random) {
  const auto below = [&](std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
  };
  Steps& steps = schedule.ranks[below(schedule.ranks.size())];
  const std::size_t at = below(steps.size());
  switch (below(6)) {
    case 0:
      std::swap(steps[at], steps[std::min(at + 1, steps.size() - 1)]);
      break;
    case 1: {
      const ScheduleStep moved = steps[at];
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at));
      steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(below(steps.size() + 1)), moved);
      break;
    }
    case 2:
      steps[at].microbatch += below(2) == 0 ? 1 : -1;
      break;
    case 3:
      steps[at].joins_next = !steps[at].joins_next;
      break;
    case 4:
      steps[at].kind = static_cast<StepKind>(below(8));
      break;
    default:
      steps[at].chunk += below(2) == 0 ? 1 : -1;
  }
}

TEST_P(Mutations, TheVerdictIsThatOfANaiveRun) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int num_valid = 0, num_broken = 0;
  for (const ScheduleRequest& request : requests()) {
    const Schedule schedule = with_messages(make_schedule(request), random() % 2 == 0);
    ASSERT_TRUE(testing::NaiveRun(schedule, random()).succeeds());
    for (int i = 0; i < 100; ++i) {
      Schedule mutated = schedule;
      for (std::size_t changes = 1 + random() % 2; changes > 0; --changes) mutate(mutated, random);
      const std::optional<std::string> problem = validate_schedule(mutated);
      ASSERT_EQ(!problem.has_value(), testing::NaiveRun(mutated, random()).succeeds())
          << problem.value_or("no problem");
      ++(problem ? num_broken : num_valid);
    }
  }
  EXPECT_GT(num_valid, 0);
  EXPECT_GT(num_broken, 0);
}

INSTANTIATE_TEST_SUITE_P(Schedules, Mutations, ::testing::ValuesIn(schedule_names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace megatron
