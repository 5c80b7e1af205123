// Tests the flags of section timeouts.
#include "megatron/config/section_timeouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/small_run.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kNone = std::nullopt;

TEST(SectionTimeouts, AreWrittenAsForFtLauncher) {
  EXPECT_THAT(parse_section_timeouts("setup:600,step:180,checkpointing:420"),
              ElementsAre(600, 180, 420));
  EXPECT_THAT(parse_section_timeouts(" step : 0.5 ,setup:none"), ElementsAre(kNone, 0.5, kNone));
  EXPECT_THAT(parse_section_timeouts("step:"), ElementsAre(kNone, kNone, kNone));
  EXPECT_THAT(parse_section_timeouts(""), ElementsAre(kNone, kNone, kNone));
}

TEST(SectionTimeouts, RefuseWhatTheyCannotRead) {
  const auto message = [](const char* text) {
    return message_of([&] { parse_section_timeouts(text); });
  };
  EXPECT_THAT(message("init:60"), HasSubstr("--ft-rank-section-timeouts: 'init' is not a section: "
                                            "there are setup, step and checkpointing"));
  EXPECT_THAT(message("step"), HasSubstr("'step' has no timeout"));
  EXPECT_THAT(message("step:1,step:2"), HasSubstr("the section step is given twice"));
  EXPECT_THAT(message("step:fast"), HasSubstr("'fast' is not a number of seconds"));
  EXPECT_THAT(message("step:0"), HasSubstr("the timeout 0 is not above 0"));
  EXPECT_THAT(message("step:inf"), HasSubstr("'inf' is not a number of seconds"));
  EXPECT_THAT(message("step:1:2"), HasSubstr("'1:2' is not a number of seconds"));
  EXPECT_THAT(message("step:1,"), HasSubstr("no error"));
}

TEST(SectionTimeouts, FlagsAskForEachOther) {
  expect_all({
      {{"--enable-ft-package", "--calc-ft-timeouts"},
       1,
       "--calc-ft-timeouts: keeps the timeouts in the folder of --save, which is not given"},
      {{"--enable-ft-package", "--ft-rank-section-timeouts", "steps:3"},
       1,
       "--ft-rank-section-timeouts: 'steps' is not a section"},
      {{"--enable-ft-package", "--ft-rank-out-of-section-timeout", "0"},
       1,
       "--ft-rank-out-of-section-timeout: must be above 0, got 0"},
  });
}

}  // namespace
}  // namespace megatron
