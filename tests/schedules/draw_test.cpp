#include "megatron/schedules/draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/schedules/make_schedule.h"
#include "megatron/schedules/messages.h"

namespace megatron {
namespace {

using testing::HasSubstr;

struct Drawn {
  Schedule schedule;
  Simulation run;
};

Drawn drawn(const std::string& name, std::int64_t ranks, std::int64_t microbatches,
            std::int64_t chunks = 1) {
  Drawn result;
  result.schedule = with_messages(make_schedule(
      {.name = name, .num_ranks = ranks, .num_chunks = chunks, .num_microbatches = microbatches}));
  result.run = simulate(result.schedule, uniform_costs(result.schedule));
  return result;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST(DrawText, ShowsEachStepAsWideAsItIsLong) {
  const Drawn it = drawn("1f1b", 2, 2);
  EXPECT_EQ(draw_text(it.schedule, it.run),
            "1f1b: 2 ranks, 2 microbatches\n"
            "F forward   BW backward   · idle\n"
            "\n"
            "rank 0 │F0 F1 ······BW0   ···BW1   \n"
            "rank 1 │···F0 BW0   F1 BW1   ······\n"
            "        0              5\n"
            "\n"
            "rank        busy    bubble  peak activations\n"
            "   0           6    33.3 %                 2\n"
            "   1           6    33.3 %                 1\n"
            "makespan 9, bubble of all ranks together 33.3 %\n");
}

TEST(DrawText, GoesOnInAFurtherBlockOfRows) {
  const Drawn it = drawn("1f1b", 2, 8);
  const std::string text = draw_text(it.schedule, it.run, {.width = 60});
  EXPECT_EQ(count_of(text, "rank 1 │"), 2u);
  EXPECT_EQ(count_of(text, "BW7"), 2u) << "once for each rank";
}

TEST(DrawText, ManyStepsBecomeNarrowRatherThanEndless) {
  const Drawn it = drawn("1f1b", 4, 400);
  EXPECT_EQ(count_of(draw_text(it.schedule, it.run, {.width = 80}), "rank 3 │"), 6u);
}

TEST(DrawText, LettersNameChunks) {
  const Drawn it = drawn("zb-v", 2, 4, 2);
  const std::string text = draw_text(it.schedule, it.run);
  EXPECT_THAT(text, HasSubstr("B0b"));
  EXPECT_THAT(text, HasSubstr("W3a"));
  EXPECT_THAT(text, HasSubstr("zb-v: 2 ranks, 2 chunks each, 4 microbatches"));
}

TEST(DrawText, ColoursTakeThePlaceOfLetters) {
  const Drawn it = drawn("zb-h1", 2, 4);
  const std::string text = draw_text(it.schedule, it.run, {.colour = true});
  EXPECT_THAT(text, HasSubstr("\033["));
  EXPECT_EQ(count_of(text, "F0"), 0u);
}

TEST(DrawText, AnEmptyStepTakesNoRoom) {
  Drawn it = drawn("1f1b", 2, 2);
  it.run = simulate(it.schedule, uniform_costs(it.schedule, {.forward_s = 0}));
  EXPECT_EQ(count_of(draw_text(it.schedule, it.run), "F0"), 0u);
  it.run = simulate(
      it.schedule,
      uniform_costs(it.schedule, {.forward_s = 0, .backward_input_s = 0, .backward_weight_s = 0}));
  EXPECT_THAT(draw_text(it.schedule, it.run), HasSubstr("makespan 0"));
}

TEST(DrawSvg, HasATooltipForEveryStep) {
  for (const char* name : {"1f1b", "zb-v", "dualpipe-v"}) {
    const Drawn it = drawn(name, 4, 8, fixed_num_chunks(name));
    std::size_t computing = 0;
    for (const auto& steps : it.schedule.ranks) {
      for (const ScheduleStep& step : steps) computing += is_message(step.kind) ? 0 : 1;
    }
    const std::string svg = draw_svg(it.schedule, it.run);
    EXPECT_EQ(count_of(svg, "<title>"), computing) << name;
    EXPECT_EQ(count_of(svg, "<g "), count_of(svg, "</g>")) << name;
    EXPECT_TRUE(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n")) << name;
  }
}

TEST(DrawSvg, EscapesNames) {
  Drawn it = drawn("1f1b", 1, 1);
  it.schedule.name = "a<b & c";
  EXPECT_THAT(draw_svg(it.schedule, it.run), HasSubstr("a&lt;b &amp; c: 1 rank, 1 microbatch"));
}

}  // namespace
}  // namespace megatron
