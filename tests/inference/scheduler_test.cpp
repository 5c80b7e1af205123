#include "megatron/inference/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <vector>

#include "support/message_of.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Tokens = std::vector<std::int64_t>;

/// Runs a plan in which every sample is `token`, and returns the sequences that ended.
std::vector<SequenceId> advance(Scheduler& scheduler, const StepPlan& plan,
                                std::optional<std::int64_t> token = 9) {
  std::vector<Tokens> tokens(plan.runs.size());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (plan.runs[i].samples && token) tokens[i] = {*token};
  return scheduler.advance(plan, tokens);
}

/// Plans and runs a step.
StepPlan step(Scheduler& scheduler, std::optional<std::int64_t> token = 9) {
  StepPlan plan = scheduler.plan(0);
  advance(scheduler, plan, token);
  return plan;
}

ScheduledRun prefill(SequenceId sequence, std::int64_t first, std::int64_t count) {
  return {.sequence = sequence, .first = first, .count = count};
}
ScheduledRun last_run(SequenceId sequence, std::int64_t first, std::int64_t count = 1,
                      std::int64_t num_drafts = 0) {
  return {sequence, first, count, num_drafts, true};
}

TEST(Scheduler, DecodesBesideChunksOfPrompts) {
  Scheduler scheduler({.max_running = 4, .max_step_tokens = 4, .block_size = 2, .num_blocks = 16});
  const SequenceId a = scheduler.add({.prompt = {1, 2, 3}, .max_new_tokens = 3});
  const SequenceId b = scheduler.add({.prompt = {4, 5, 6, 7, 8, 9}, .max_new_tokens = 1});
  const SequenceId c = scheduler.add({.prompt = {1}, .max_new_tokens = 1});
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 0, 3), prefill(b, 0, 1)));
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 3), prefill(b, 1, 3)));
  const StepPlan third = scheduler.plan(0);
  EXPECT_THAT(third.runs, ElementsAre(last_run(a, 4), last_run(b, 4, 2), last_run(c, 0)));
  EXPECT_THAT(advance(scheduler, third), ElementsAre(a, b, c));
  EXPECT_TRUE(scheduler.is_empty());
  EXPECT_EQ(scheduler.pool().num_available(), 16);
}

TEST(Scheduler, WholePromptsWaitForRoomInAStep) {
  Scheduler scheduler({.max_running = 3,
                       .max_step_tokens = 4,
                       .block_size = 2,
                       .num_blocks = 16,
                       .chunked_prefill = false});
  const SequenceId a = scheduler.add({.prompt = {1, 2, 3}, .max_new_tokens = 2});
  const SequenceId b = scheduler.add({.prompt = {4, 5, 6, 7}, .max_new_tokens = 1});
  const SequenceId c = scheduler.add({.prompt = {1}, .max_new_tokens = 1});
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 0, 3)));
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 3))) << "c does not pass b";
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(b, 0, 4)));
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(c, 0)));
}

TEST(Scheduler, PromptIsOnlyComputedForNoNewTokens) {
  Scheduler scheduler({.max_running = 1, .max_step_tokens = 2, .block_size = 2, .num_blocks = 2});
  const SequenceId a = scheduler.add({.prompt = {1, 2, 3}, .max_new_tokens = 0});
  EXPECT_THAT(step(scheduler).runs, ElementsAre(prefill(a, 0, 2)));
  const StepPlan plan = scheduler.plan(0);
  EXPECT_THAT(plan.runs, ElementsAre(prefill(a, 2, 1)));
  EXPECT_THAT(advance(scheduler, plan), ElementsAre(a));
}

TEST(Scheduler, FoundPrefixIsNotComputed) {
  Scheduler scheduler({.max_running = 4, .max_step_tokens = 64, .block_size = 2, .num_blocks = 16});
  const SequenceId a = scheduler.add({.prompt = {1, 2, 3, 4}, .max_new_tokens = 9});
  step(scheduler);
  const SequenceId all = scheduler.add({.prompt = {1, 2, 3, 4}, .max_new_tokens = 1});
  const SequenceId part = scheduler.add({.prompt = {1, 2, 3, 5, 6}, .max_new_tokens = 1});
  const SequenceId none =
      scheduler.add({.prompt = {1, 2, 3, 4}, .max_new_tokens = 1, .first_output = 0});
  const BlockId shared = scheduler.blocks(a)[1];
  const StepPlan plan = scheduler.plan(0);
  EXPECT_THAT(plan.runs, ElementsAre(last_run(a, 4), last_run(all, 3), last_run(part, 2, 3),
                                     last_run(none, 0, 4)));
  EXPECT_THAT(plan.copies, ElementsAre(BlockCopy{shared, scheduler.blocks(all)[1]}))
      << "the last token is computed again in a block of its own";
  advance(scheduler, plan);
  scheduler.drop(a);
  const SequenceId later = scheduler.add({.prompt = {1, 2, 3, 4}, .max_new_tokens = 2});
  const StepPlan alone = step(scheduler);
  EXPECT_THAT(alone.runs, ElementsAre(last_run(later, 3)));
  EXPECT_THAT(alone.copies, IsEmpty()) << "no one else has the block";
}

TEST(Scheduler, PromptsWhoseOutputsAreAllWantedAreComputedWholeAndInPieces) {
  Scheduler scheduler({.max_running = 4,
                       .max_step_tokens = 64,
                       .block_size = 2,
                       .num_blocks = 16,
                       .max_step_outputs = 3});
  const SequenceId a = scheduler.add({.prompt = {1, 2, 3, 4, 5}, .max_new_tokens = 9});
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 0, 5)));
  const SequenceId b =
      scheduler.add({.prompt = {1, 2, 3, 4, 5}, .max_new_tokens = 9, .first_output = 0});
  const SequenceId c = scheduler.add({.prompt = {1, 2, 6}, .max_new_tokens = 1, .first_output = 0});
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 5), prefill(b, 0, 3)));
  EXPECT_THAT(step(scheduler).runs,
              ElementsAre(last_run(a, 6), last_run(b, 3, 2), prefill(c, 0, 1)));
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 7), last_run(b, 5), last_run(c, 1, 2)));
  const SequenceId fork = scheduler.fork(b, 5, 8);
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 8), last_run(b, 6), last_run(fork, 5)));
}

TEST(Scheduler, StatesBeginBehindSnapshotsAlone) {
  Scheduler scheduler({.max_running = 4,
                       .max_step_tokens = 64,
                       .block_size = 2,
                       .num_blocks = 16,
                       .keeps_states = true});
  const SequenceId a = scheduler.add({.prompt = {1, 2, 3, 4, 5}, .max_new_tokens = 9});
  scheduler.set_max_drafts(a, 3);
  EXPECT_THAT(step(scheduler).runs, ElementsAre(prefill(a, 0, 4)));
  EXPECT_THAT(scheduler.snapshots(), ElementsAre(StateSnapshot{a, scheduler.blocks(a)[1]}));
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 4)));
  EXPECT_THAT(scheduler.snapshots(), IsEmpty());
  const SequenceId longer = scheduler.add({.prompt = {1, 2, 3, 4, 6}, .max_new_tokens = 1});
  const SequenceId equal = scheduler.add({.prompt = {1, 2, 3, 4}, .max_new_tokens = 1});
  const SequenceId fork = scheduler.fork(a, 5, 8);
  const SequenceId other = scheduler.fork(a, 5, 7);
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 5), last_run(fork, 5),
                                                last_run(other, 5), last_run(longer, 4)))
      << "there are no drafts";
  EXPECT_THAT(step(scheduler).runs, testing::Contains(last_run(equal, 0, 4)))
      << "the first block has no snapshot";
  const SequenceId late = scheduler.fork(a, 6, 1);
  EXPECT_THAT(scheduler.blocks(late), IsEmpty()) << "states cannot drop tokens";
}

TEST(Scheduler, SnapshotsAreTakenWherePromptsPart) {
  Scheduler scheduler({.max_running = 4,
                       .max_step_tokens = 64,
                       .block_size = 2,
                       .num_blocks = 32,
                       .keeps_states = true,
                       .max_snapshots = 2});
  const auto add = [&](std::vector<std::int64_t> prompt) {
    return scheduler.add({.prompt = std::move(prompt), .max_new_tokens = 1});
  };
  const SequenceId first = add({1, 2, 3, 4, 5, 6, 7});
  EXPECT_THAT(step(scheduler).runs, ElementsAre(prefill(first, 0, 6)));
  step(scheduler);
  const SequenceId second = add({1, 2, 3, 4, 8, 8, 8});
  EXPECT_THAT(step(scheduler).runs, ElementsAre(prefill(second, 0, 4))) << "behind what is alike";
  EXPECT_EQ(scheduler.snapshots().size(), 1U);
  EXPECT_THAT(step(scheduler).runs, ElementsAre(prefill(second, 4, 2)));
  step(scheduler);
  const SequenceId third = add({1, 2, 3, 4, 9, 9, 9});
  EXPECT_THAT(step(scheduler).runs, ElementsAre(prefill(third, 4, 2)));
  step(scheduler);
  const SequenceId again = add({1, 2, 3, 4, 5, 6, 8});
  EXPECT_THAT(step(scheduler).runs, ElementsAre(prefill(again, 4, 2)))
      << "the snapshot of the first is forgotten, and that of what is alike was used";
}

TEST(Scheduler, OfAnAnswerTheLastSnapshotIsKept) {
  Scheduler scheduler({.max_running = 1,
                       .max_step_tokens = 8,
                       .block_size = 2,
                       .num_blocks = 8,
                       .keeps_states = true});
  const SequenceId text = scheduler.add({.prompt = {1, 2, 3}, .max_new_tokens = 9});
  for (int i = 0; i < 6; ++i) step(scheduler);
  const std::vector<BlockId> blocks = scheduler.blocks(text);
  std::vector<bool> kept;
  for (const BlockId block : blocks) kept.push_back(scheduler.pool().has_snapshot(block));
  EXPECT_THAT(kept, ElementsAre(true, false, true, false)) << "and that of the prompt";
}

TEST(Scheduler, LeavesABlockForEachThatRuns) {
  Scheduler scheduler({.max_running = 2, .max_step_tokens = 8, .block_size = 2, .num_blocks = 3});
  const SequenceId a = scheduler.add({.prompt = {1, 2}, .max_new_tokens = 2});
  const SequenceId b = scheduler.add({.prompt = {3, 4, 5}, .max_new_tokens = 1});
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 0, 2)));
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 2)));
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(b, 0, 3)));
}

TEST(Scheduler, PreemptsTheLatestAndComputesItAgain) {
  Scheduler scheduler({.max_running = 2,
                       .max_step_tokens = 16,
                       .block_size = 2,
                       .num_blocks = 5,
                       .prefix_cache = false});
  const SequenceId a = scheduler.add({.prompt = {1, 2}, .max_new_tokens = 6});
  const SequenceId b = scheduler.add({.prompt = {3, 4}, .max_new_tokens = 6});
  EXPECT_EQ(step(scheduler).runs.size(), 2U);
  EXPECT_EQ(step(scheduler).runs.size(), 2U);
  EXPECT_EQ(step(scheduler).runs.size(), 2U);
  const StepPlan plan = step(scheduler);  // both need a third block, and one is left
  EXPECT_THAT(plan.runs, ElementsAre(last_run(a, 4)));
  EXPECT_THAT(plan.preempted, ElementsAre(b));
  EXPECT_TRUE(scheduler.contains(b));
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 5)));
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 6)));
  EXPECT_FALSE(scheduler.contains(a));
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(b, 0, 5)));
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(b, 5)));
}

TEST(Scheduler, SwapsBlocksOfThePreemptedWhileThereIsRoom) {
  for (const std::int64_t num_swap_blocks : {2, 1}) {
    Scheduler scheduler({.max_running = 2,
                         .max_step_tokens = 16,
                         .block_size = 2,
                         .num_blocks = 5,
                         .prefix_cache = false,
                         .num_swap_blocks = num_swap_blocks});
    const SequenceId a = scheduler.add({.prompt = {1, 2}, .max_new_tokens = 6});
    const SequenceId b = scheduler.add({.prompt = {3, 4}, .max_new_tokens = 6});
    for (int i = 0; i < 3; ++i) step(scheduler);
    const std::vector<BlockId> before = scheduler.blocks(b);
    const StepPlan out = step(scheduler);
    EXPECT_THAT(out.preempted, ElementsAre(b));
    for (int i = 0; i < 2; ++i) step(scheduler);
    ASSERT_FALSE(scheduler.contains(a));
    const StepPlan in = step(scheduler);
    if (num_swap_blocks == 1) {  // it is computed again
      EXPECT_THAT(out.copies, IsEmpty());
      EXPECT_THAT(in.runs, ElementsAre(last_run(b, 0, 5)));
      continue;
    }
    EXPECT_THAT(out.copies, ElementsAre(BlockCopy{before[0], 0, CopyKind::swap_out},
                                        BlockCopy{before[1], 1, CopyKind::swap_out}));
    EXPECT_THAT(in.copies, ElementsAre(BlockCopy{0, scheduler.blocks(b)[0], CopyKind::swap_in},
                                       BlockCopy{1, scheduler.blocks(b)[1], CopyKind::swap_in}));
    EXPECT_THAT(in.runs, ElementsAre(last_run(b, 4)));
    EXPECT_EQ(scheduler.swap_pool().num_available(), 2);
  }
}

TEST(Scheduler, TakesBackOnlyTheSwappedBlocksThatAreNotFound) {
  Scheduler scheduler({.max_running = 1,
                       .max_step_tokens = 16,
                       .block_size = 2,
                       .num_blocks = 4,
                       .num_swap_blocks = 4});
  const SequenceId a = scheduler.add({.prompt = {1, 2, 3, 4}, .max_new_tokens = 3, .priority = 1});
  step(scheduler);
  const SequenceId urgent = scheduler.add({.prompt = {5, 6, 7}, .max_new_tokens = 1});
  EXPECT_EQ(step(scheduler).copies.size(), 2U);
  ASSERT_FALSE(scheduler.contains(urgent));
  const StepPlan plan = step(scheduler);
  EXPECT_THAT(plan.copies, IsEmpty()) << "no one took its blocks";
  EXPECT_THAT(plan.runs, ElementsAre(last_run(a, 4)));
  scheduler.recompute_all();
  EXPECT_EQ(scheduler.swap_pool().num_available(), 4);
}

TEST(Scheduler, BetterPriorityTakesThePlaceOfAWorse) {
  Scheduler scheduler({.max_running = 1, .max_step_tokens = 8, .block_size = 2, .num_blocks = 8});
  const SequenceId batch = scheduler.add({.prompt = {1, 2}, .max_new_tokens = 9, .priority = 5});
  step(scheduler);
  const SequenceId equal = scheduler.add({.prompt = {3}, .max_new_tokens = 1, .priority = 5});
  EXPECT_THAT(step(scheduler).preempted, IsEmpty());
  const SequenceId urgent = scheduler.add({.prompt = {4}, .max_new_tokens = 1});
  const StepPlan plan = step(scheduler);
  EXPECT_THAT(plan.preempted, ElementsAre(batch));
  EXPECT_THAT(plan.runs, ElementsAre(last_run(urgent, 0)));
  EXPECT_EQ(step(scheduler).runs.front().sequence, batch) << "it arrived before the other";
  EXPECT_TRUE(scheduler.contains(equal));
}

TEST(Scheduler, ForksShareBlocksUntilTheyWrite) {
  Scheduler scheduler({.max_running = 4, .max_step_tokens = 64, .block_size = 4, .num_blocks = 8});
  const SequenceId a = scheduler.add({.prompt = {1, 2, 3, 4, 5}, .max_new_tokens = 4});
  step(scheduler);
  const SequenceId b = scheduler.fork(a, 5, 8);
  EXPECT_THAT(scheduler.tokens(b), ElementsAre(1, 2, 3, 4, 5, 8));
  EXPECT_EQ(scheduler.blocks(a), scheduler.blocks(b));
  const BlockId full = scheduler.blocks(a)[0];
  const BlockId partial = scheduler.blocks(a)[1];
  const StepPlan plan = step(scheduler);
  EXPECT_THAT(plan.runs, ElementsAre(last_run(a, 5), last_run(b, 5)));
  EXPECT_THAT(plan.copies, ElementsAre(BlockCopy{partial, scheduler.blocks(a)[1]}));
  EXPECT_THAT(scheduler.blocks(b), ElementsAre(full, partial));
  EXPECT_EQ(scheduler.pool().num_references(full), 2);
}

// An encoder's text takes tokens of the step that computes it, and the blocks of its sequence.
TEST(Scheduler, TextsOfEncodersAreInTheBlocksOfTheirSequences) {
  Scheduler scheduler({.max_running = 3,
                       .max_step_tokens = 8,
                       .block_size = 2,
                       .num_blocks = 9,
                       .chunked_prefill = false,
                       .prefix_cache = false});
  const SequenceId a = scheduler.add({.prompt = {1}, .max_new_tokens = 9, .num_encoded = 5});
  const SequenceId b = scheduler.add({.prompt = {2}, .max_new_tokens = 9, .num_encoded = 4});
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 0))) << "both texts are too long";
  EXPECT_EQ(scheduler.blocks(a).size(), 3U);
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 1), last_run(b, 0)));
  const SequenceId fork = scheduler.fork(a, 1, 8);
  EXPECT_EQ(scheduler.blocks(fork), scheduler.blocks(a));
  const BlockId last = scheduler.blocks(a)[2];
  const StepPlan plan = step(scheduler);
  EXPECT_THAT(plan.runs, ElementsAre(last_run(a, 2), last_run(fork, 1), last_run(b, 1)));
  EXPECT_EQ(plan.copies.size(), 2U) << "of the blocks that they write to";
  EXPECT_EQ(scheduler.pool().num_references(last), 2);
  for (const SequenceId sequence : {a, fork, b}) scheduler.drop(sequence);
  EXPECT_EQ(scheduler.pool().num_available(), 9);
  EXPECT_THAT(
      message_of([&] { scheduler.add({.prompt = {1}, .max_new_tokens = 1, .num_encoded = 8}); }),
      HasSubstr("and the encoder computes a text whole"));
}

TEST(Scheduler, SwapsTheBlocksOfAnEncodersText) {
  Scheduler scheduler({.max_running = 2,
                       .max_step_tokens = 16,
                       .block_size = 2,
                       .num_blocks = 5,
                       .prefix_cache = false,
                       .num_swap_blocks = 3});
  const SequenceId a = scheduler.add({.prompt = {1}, .max_new_tokens = 5, .num_encoded = 1});
  const SequenceId b = scheduler.add({.prompt = {2}, .max_new_tokens = 8, .num_encoded = 5});
  for (std::int64_t i = 0; i < 4; ++i)
    EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, i), last_run(b, i)));
  const StepPlan out = step(scheduler);  // a needs a third block
  EXPECT_THAT(out.runs, ElementsAre(last_run(a, 4)));
  EXPECT_EQ(out.copies.size(), 3U) << "more than b has tokens for";
  const StepPlan back = step(scheduler);
  EXPECT_THAT(back.runs, ElementsAre(last_run(b, 4)));
  EXPECT_EQ(back.copies.size(), 3U);
  EXPECT_EQ(back.copies.front().kind, CopyKind::swap_in);
}

TEST(Scheduler, HeldSequencesAreForkedAndDropped) {
  Scheduler scheduler({.max_running = 2, .max_step_tokens = 64, .block_size = 4, .num_blocks = 8});
  const SequenceId a = scheduler.add({.prompt = {1, 2}, .max_new_tokens = 3});
  step(scheduler, std::nullopt);
  EXPECT_THAT(step(scheduler).runs, IsEmpty());
  const SequenceId x = scheduler.fork(a, 2, 7);
  const SequenceId y = scheduler.fork(a, 2, 8);  // there is no third place
  scheduler.drop(a);
  EXPECT_EQ(scheduler.num_running(), 1);
  const StepPlan plan = step(scheduler, std::nullopt);
  EXPECT_THAT(plan.runs, ElementsAre(last_run(x, 2), last_run(y, 0, 3)));
  EXPECT_THAT(plan.copies, IsEmpty());
  const SequenceId other = scheduler.add({.prompt = {5}, .max_new_tokens = 1});
  const StepPlan next = step(scheduler);
  EXPECT_THAT(next.preempted, ElementsAre(y)) << "whoever is held makes room";
  EXPECT_THAT(next.runs, ElementsAre(last_run(other, 0)));
}

TEST(Scheduler, DraftsGetWhatIsLeft) {
  Scheduler scheduler({.max_running = 4, .max_step_tokens = 6, .block_size = 2, .num_blocks = 16});
  const SequenceId a = scheduler.add({.prompt = {1, 2}, .max_new_tokens = 6});
  scheduler.set_max_drafts(a, 4);
  step(scheduler);
  const SequenceId b = scheduler.add({.prompt = {3, 4, 5}, .max_new_tokens = 1});
  StepPlan plan = scheduler.plan(0);
  EXPECT_THAT(plan.runs, ElementsAre(last_run(a, 2, 3, 2), last_run(b, 0, 3)));
  scheduler.advance(plan, std::vector<Tokens>{{6, 7}, {9}});  // one of two drafts is right
  EXPECT_THAT(scheduler.tokens(a), ElementsAre(1, 2, 9, 6, 7));
  plan = scheduler.plan(0);
  EXPECT_THAT(plan.runs, ElementsAre(last_run(a, 4, 3, 2))) << "at most 8 tokens in all";
  plan.runs[0].count = 2;
  plan.runs[0].num_drafts = 1;  // the caller has only one
  EXPECT_THAT(scheduler.advance(plan, std::vector<Tokens>{{6, 7}}), IsEmpty());
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 6)));
  EXPECT_TRUE(scheduler.is_empty());
}

TEST(Scheduler, EndsAtDeadlinesAndOnRequest) {
  Scheduler scheduler({.max_running = 2, .max_step_tokens = 8, .block_size = 2, .num_blocks = 8});
  const SequenceId a = scheduler.add({.prompt = {1}, .max_new_tokens = 9, .deadline_s = 2});
  const SequenceId b = scheduler.add({.prompt = {1}, .max_new_tokens = 9});
  StepPlan plan = scheduler.plan(1);
  EXPECT_TRUE(scheduler.drop(b));
  EXPECT_FALSE(scheduler.drop(b));
  advance(scheduler, plan);
  plan = scheduler.plan(2);
  EXPECT_THAT(plan.expired, ElementsAre(a));
  EXPECT_THAT(plan.runs, IsEmpty());
  EXPECT_EQ(scheduler.pool().num_available(), 8);
}

TEST(Scheduler, ComputesAllAgainWithNewWeights) {
  Scheduler scheduler({.max_running = 2, .max_step_tokens = 8, .block_size = 2, .num_blocks = 8});
  const SequenceId a = scheduler.add({.prompt = {1, 2, 3}, .max_new_tokens = 9});
  step(scheduler);
  scheduler.recompute_all();
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 0, 4)));
  const StepPlan failed = scheduler.plan(0);
  EXPECT_THROW(scheduler.plan(0), InternalError);
  scheduler.recompute_all();
  EXPECT_THROW(advance(scheduler, failed), InternalError);
  EXPECT_THAT(step(scheduler).runs, ElementsAre(last_run(a, 0, 5)));
}

TEST(Scheduler, RefusesWhatCanNeverFit) {
  Scheduler scheduler({.max_running = 2,
                       .max_step_tokens = 6,
                       .block_size = 4,
                       .num_blocks = 2,
                       .chunked_prefill = false});
  const auto message = [&](std::size_t num_tokens, std::int64_t max_new_tokens) {
    return message_of([&] {
      scheduler.drop(
          scheduler.add({.prompt = Tokens(num_tokens, 1), .max_new_tokens = max_new_tokens}));
    });
  };
  EXPECT_EQ(message(5, 4), "no error");
  EXPECT_THAT(message(5, 5), HasSubstr("a prompt of 5 tokens and up to 5 new ones: the KV cache "
                                       "has room for 8 tokens"));
  EXPECT_THAT(message(5, 5), HasSubstr("--inference-dynamic-batching-buffer-size-gb"));
  EXPECT_THAT(message(1, std::numeric_limits<std::int64_t>::max()), HasSubstr("has room for 8"));
  EXPECT_THAT(message(9, 0), HasSubstr("has room for 8 tokens"));
  EXPECT_EQ(message(6, 1), "no error");
  EXPECT_THAT(message(7, 1),
              HasSubstr("a step computes at most 6, and prompts are computed whole"));
  EXPECT_THAT(message(7, 1), HasSubstr("--enable-chunked-prefill"));
  EXPECT_THAT(message(0, 1), HasSubstr("it is empty"));
  EXPECT_THAT(message(1, -1), HasSubstr("-1"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message_of([&] { scheduler.add({.prompt = {1}, .deadline_s = nan}); }),
              HasSubstr("a prompt: deadline: NaN"));
}

TEST(Scheduler, RefusesSequencesThatAreTooLongByName) {
  Scheduler scheduler({.max_sequence_length = 10});
  scheduler.add({.prompt = Tokens(6, 1), .max_new_tokens = 4});
  const auto message = [&](std::size_t num_tokens, std::int64_t max_new_tokens) {
    return message_of([&] {
      scheduler.add(
          {.name = "prompt 3", .prompt = Tokens(num_tokens, 1), .max_new_tokens = max_new_tokens});
    });
  };
  EXPECT_THAT(message(6, 5), HasSubstr("prompt 3 of 6 tokens and up to 5 new ones: "
                                       "--inference-max-seq-length is 10\n  fix: raise it"));
  EXPECT_THAT(message(11, 0), HasSubstr("--inference-max-seq-length is 10"));
  EXPECT_THAT(message(1, std::numeric_limits<std::int64_t>::max()), HasSubstr("is 10"));
}

TEST(Scheduler, RefusesOptionsOutOfRange) {
  const auto message = [](const SchedulerOptions& options) {
    return message_of([&] { Scheduler{options}; });
  };
  EXPECT_THAT(message({.max_running = 0}), HasSubstr("--inference-dynamic-batching-max-requests"));
  EXPECT_THROW(Scheduler({.block_size = 0}), InternalError);
  EXPECT_THAT(message({.num_blocks = 0}),
              HasSubstr("--inference-dynamic-batching-buffer-size-gb: has no room for a block"));
  EXPECT_THAT(message({.max_running = 9, .max_step_tokens = 8}),
              HasSubstr("--inference-dynamic-batching-max-tokens: 8 is less than the 9 of"));
}

}  // namespace
}  // namespace megatron
