#include "megatron/base/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/json.h"

namespace megatron {
namespace {

TEST(TraceJson, NamesProcessesAndCountsFromTheFirstStretch) {
  const std::vector<TraceTrack> tracks{
      {.process = 0,
       .process_name = "rank 0",
       .spans = {{"F 0", "forward", 5000, 1500, {{"stage", std::int64_t{2}}, {"model", "gpt"}}}}},
      {.process = 1,
       .thread = 7,
       .process_name = "rank 1",
       .thread_name = "messages",
       .spans = {{"send F 0", "message", 3000, 500}}}};
  const Json events = Json::parse(trace_json(tracks)).at("traceEvents");
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0], (Json{{"ph", "M"},
                             {"name", "process_name"},
                             {"pid", 0},
                             {"tid", 0},
                             {"args", {{"name", "rank 0"}}}}));
  EXPECT_EQ(events[1], (Json{{"ph", "X"},
                             {"name", "F 0"},
                             {"cat", "forward"},
                             {"pid", 0},
                             {"tid", 0},
                             {"ts", 2.0},
                             {"dur", 1.5},
                             {"args", {{"stage", 2}, {"model", "gpt"}}}}));
  EXPECT_EQ(events[3].at("name"), "thread_name");
  EXPECT_EQ(events[4].at("ts"), 0.0);
  EXPECT_EQ(events[4].at("tid"), 7);
}

TEST(TraceJson, OfNothingIsAnEmptyTrace) {
  EXPECT_EQ(Json::parse(trace_json({})).at("traceEvents"), Json::array());
}

}  // namespace
}  // namespace megatron
