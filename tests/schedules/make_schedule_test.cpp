#include "megatron/schedules/make_schedule.h"

#include <gtest/gtest.h>

#include <random>

#include "megatron/schedules/messages.h"
#include "megatron/schedules/validate.h"

namespace megatron {
namespace {

std::string described(const ScheduleRequest& request) {
  return request.name + ", " + std::to_string(request.num_ranks) + " ranks, " + std::to_string(request.num_chunks) + " chunks, " +
         std::to_string(request.num_microbatches) + " microbatches, group " + std::to_string(request.microbatch_group);
}

void expect_valid(const ScheduleRequest& request) {
  SCOPED_TRACE(described(request));
  for (const bool ahead : {false, true}) {
    EXPECT_EQ(problem_of(with_messages(make_schedule(request), ahead)), std::nullopt);
    EXPECT_EQ(problem_of(with_messages(make_forward_schedule(request), ahead), false), std::nullopt);
  }
}

std::vector<std::int64_t> chunk_counts(const std::string& name, std::int64_t most) {
  if (fixed_num_chunks(name) != 0) return {fixed_num_chunks(name)};
  std::vector<std::int64_t> counts;
  for (std::int64_t count = name == "interleaved" ? 2 : 1; count <= most; ++count) counts.push_back(count);
  return counts;
}

TEST(MakeSchedule, EverySmallScheduleIsValid) {
  for (const std::string& name : schedule_names()) {
    for (const std::int64_t chunks : chunk_counts(name, 3)) {
      for (std::int64_t ranks = 1; ranks <= 6; ++ranks) {
        for (std::int64_t microbatches = 1; microbatches <= 14; ++microbatches) expect_valid({name, ranks, chunks, microbatches});
      }
    }
  }
}

TEST(MakeSchedule, AnyGroupSizeIsValid) {
  for (const std::string name : {"interleaved", "combined-1f1b"}) {
    for (std::int64_t ranks = 1; ranks <= 5; ++ranks) {
      for (std::int64_t microbatches = 1; microbatches <= 13; ++microbatches) {
        for (std::int64_t group = ranks; group <= microbatches; ++group) expect_valid({name, ranks, 3, microbatches, group});
      }
    }
  }
}

TEST(MakeSchedule, RandomScheduleIsValid) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto draw = [&](std::int64_t least, std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(least, most)(random); };
  for (int i = 0; i < 120; ++i) {
    ScheduleRequest request{schedule_names()[draw(0, 7)], draw(1, 32), 1, draw(1, 128)};
    const std::vector<std::int64_t> chunks = chunk_counts(request.name, 8);
    request.num_chunks = chunks[draw(0, static_cast<std::int64_t>(chunks.size()) - 1)];
    request.microbatch_group = draw(0, 1) == 0 ? 0 : draw(request.num_ranks, std::max(request.num_ranks, request.num_microbatches));
    expect_valid(request);
  }
}

}  // namespace
}  // namespace megatron
