// Parses --blend-schedule, and checks its rules and those of --train-epochs.
#include "megatron/config/blend_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "config/small_run.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

BlendStep step(std::int64_t iteration, std::vector<std::string> prefixes,
               std::vector<double> weights) {
  return {.iteration = iteration, .prefixes = std::move(prefixes), .weights = std::move(weights)};
}

TEST(BlendSchedule, ReadsStepsHoweverWordsAreDivided) {
  const BlendStep first = step(0, {"a", "b"}, {0.7, 0.3}), second = step(1000, {"c"}, {2});
  EXPECT_THAT(parse_blend_schedule({"0: 0.7 a 0.3 b 1000: 2 c"}), ElementsAre(first, second));
  EXPECT_THAT(parse_blend_schedule({"0: 0.7 a 0.3 b", "1000: 2 c"}), ElementsAre(first, second));
  EXPECT_THAT(parse_blend_schedule({"0:", "0.7", "a", "0.3", "b", "1000:", "2", "c"}),
              ElementsAre(first, second));
}

TEST(BlendSchedule, ReadsAFile) {
  const TemporaryFolder folder;
  std::ofstream(folder / "mix.txt") << "5: 1 a\n10: 1 a\n    3 b\n";
  EXPECT_THAT(parse_blend_schedule({folder / "mix.txt"}),
              ElementsAre(step(5, {"a"}, {1}), step(10, {"a", "b"}, {1, 3})));
  EXPECT_THAT(message_of([&] { parse_blend_schedule({folder / "none"}); }), HasSubstr("none"));
}

TEST(BlendSchedule, RefusesMistakes) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {" ", "is empty"},
      {"0.5 a 0.5 b", "does not begin with an iteration: 0.5"},
      {"0: 0 a 1 b",
       "iteration 0: the weight of a must be above zero: 0\n  fix: leave the source out of this "
       "step, or give it a weight"},
      {"0: 1 a 9: -2 b", "iteration 9: the weight of b must be above zero: -2"},
      {"0: nan a", "the weight of a must be above zero: nan"},
      {"0: inf a", "the weight of a must be above zero: inf"},
      {"0: a b", "a weight must stand before b: a"},
      {"0: 1 a b", "a weight and a source must come in pairs: b"},
      {"0: 1 2: 1 a", "a weight and a source must come in pairs: 1"},
      {"0: 1 a 2 a", "a is given twice"},
      {"0: 5: 1 a", "iteration 0: there are no sources"},
      {"0: 1 a 5:", "iteration 5: there are no sources"},
      {"-1: 1 a", "begins with the number of an iteration and a colon: -1:"},
      {"10k: 1 a", "begins with the number of an iteration and a colon: 10k:"},
      {"99999999999999999999: 1 a", "begins with the number of an iteration"},
      {"5: 1 a 5: 1 b",
       "the iterations do not increase: 5 follows 5\n  fix: write the steps in ascending order"},
      {"9: 1 a 5: 1 b", "the iterations do not increase: 5 follows 9"}};
  for (const auto& [text, expected] : table)
    EXPECT_THAT(message_of([&] { parse_blend_schedule({text}); }), HasSubstr(expected)) << text;
}

/// A run over two data sets, which the rules do not open.
Args mixed(const Args& more) {
  Args words = small(more);
  std::erase(words, "--mock-data");
  words.insert(words.end(), {"--data-path", "a", "b"});
  return words;
}

TEST(BlendScheduleRules, StepsLieWithinTheRun) {
  EXPECT_EQ(mistake_of(mixed({"--blend-schedule", "0: 1 a 9: 1 b"})), "no error");
  EXPECT_THAT(mistake_of(mixed({"--blend-schedule", "0: 1 a 10: 1 b"})),
              HasSubstr("--blend-schedule: iteration 10 is not before the end of training at "
                        "iteration 10"));
  // 60 samples with batches of 2, 4, 6 and then 8: the schedule's own number of iterations.
  const Args ramp = {"--train-iters",
                     "0",
                     "--train-samples",
                     "60",
                     "--global-batch-size",
                     "8",
                     "--rampup-batch-size",
                     "2",
                     "2",
                     "30",
                     "--blend-schedule"};
  Args at_end = ramp;
  at_end.push_back("0: 1 a 1000: 1 b");
  const std::string message = mistake_of(mixed(at_end));
  ASSERT_THAT(message, HasSubstr("end of training at iteration "));
  const std::int64_t iterations = std::stoll(message.substr(message.rfind("iteration ") + 10));
  Args before_end = ramp;
  before_end.push_back("0: 1 a " + std::to_string(iterations - 1) + ": 1 b");
  EXPECT_EQ(mistake_of(mixed(before_end)), "no error");
}

TEST(BlendScheduleRules, WhatItExcludes) {
  EXPECT_THAT(mistake_of(mixed({"--blend-schedule", "0: 1 a 5: 0 b"})),
              HasSubstr("the weight of b must be above zero"));
  EXPECT_THAT(mistake({"--blend-schedule", "0: 1 a"}),
              HasSubstr("needs --data-path or --train-data-path, the sources to mix"));
  EXPECT_THAT(mistake_of(mixed(
                  {"--blend-schedule", "0: 1 a 5: 1 b", "--phase-transition-iterations", "5"})),
              HasSubstr("excludes --phase-transition-iterations"));
  EXPECT_THAT(
      mistake_of(mixed({"--blend-schedule", "0: 1 a 5: 1 b", "--decrease-batch-size-if-needed"})),
      HasSubstr("excludes --decrease-batch-size-if-needed"));
}

TEST(TrainEpochsRules, AreTheLengthOfARun) {
  EXPECT_EQ(mistake({"--train-iters", "0", "--train-epochs", "2.5"}), "no error");
  EXPECT_EQ(mistake({"--train-iters", "0", "--train-epochs", "2", "--lr-warmup-iters", "5"}),
            "no error");
  EXPECT_EQ(mistake({"--train-iters", "0", "--train-epochs", "2", "--lr-warmup-samples", "5"}),
            "no error");
  expect_all({
      {{"--train-epochs", "1"}, 1, "--train-epochs: excludes --train-iters 10"},
      {{"--train-iters", "0", "--train-samples", "40", "--train-epochs", "1"},
       1,
       "--train-epochs: excludes --train-samples 40"},
      {{"--train-iters", "0"}, 1, "--train-epochs X"},
      {{"--train-iters", "0", "--train-epochs", "0"}, 1, "must be above 0"},
      {{"--train-iters", "0", "--train-epochs", "-1"}, 1, "must be above 0"},
      {{"--train-iters", "0", "--train-epochs", "nan"}, 1, "--train-epochs"},
      {{"--train-iters", "0", "--train-epochs", "1", "--phase-transition-iterations", "3"},
       1,
       "--train-epochs: excludes --phase-transition-iterations"},
      {{"--train-iters", "0", "--train-epochs", "1", "--lr-warmup-iters", "2", "--lr-decay-samples",
        "100"},
       1,
       "cannot count both iterations and samples"},
  });
}

}  // namespace
}  // namespace megatron
