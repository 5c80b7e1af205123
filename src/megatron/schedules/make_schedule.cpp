// The table of named schedules, and the checks of their arguments.
#include "megatron/schedules/make_schedule.h"

#include <algorithm>
#include <array>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/schedules/rank_steps.h"

namespace megatron {
namespace {

struct ScheduleInfo {
  std::string_view name;
  ChunkOrder order;
  std::int64_t num_chunks;  ///< 0: any
  Generator generator;
};

constexpr std::array<ScheduleInfo, 8> kSchedules{{
    {"gpipe", ChunkOrder::loop, 1, gpipe},
    {"1f1b", ChunkOrder::loop, 1, one_f_one_b},
    {"interleaved", ChunkOrder::loop, 0, interleaved},
    {"zb-h1", ChunkOrder::loop, 1, zb_h1},
    {"zb-h2", ChunkOrder::loop, 1, zb_h2},
    {"zb-v", ChunkOrder::v, 2, zb_v},
    {"dualpipe-v", ChunkOrder::v, 2, dualpipe_v},
    {"combined-1f1b", ChunkOrder::loop, 0, combined_1f1b},
}};

const ScheduleInfo& kind_of(std::string_view name) {
  const auto* const found =
      std::find_if(kSchedules.begin(), kSchedules.end(),
                   [&](const ScheduleInfo& kind) { return kind.name == name; });
  if (found == kSchedules.end()) {
    throw UserError({.what = "--pipeline-schedule: unknown schedule",
                     .got = std::string(name),
                     .fix = "choose one of " + joined_text(kSchedules, ", ", &ScheduleInfo::name)});
  }
  return *found;
}

std::string flag_of(const ScheduleInfo& kind) {
  return "--pipeline-schedule " + std::string(kind.name);
}

std::string counted(std::int64_t count, const std::string& word) {
  const std::string plural = word.ends_with("ch") ? "es" : "s";
  return std::to_string(count) + " " + word + (count == 1 ? "" : plural);
}

void require_fixed_chunks(const ScheduleInfo& kind, std::int64_t num_chunks) {
  if (kind.num_chunks == 0 || kind.num_chunks == num_chunks) return;
  const std::string fix = kind.num_chunks == 1 ? "omit --num-virtual-stages-per-pipeline-rank, "
                                                 "or choose interleaved or combined-1f1b"
                                               : "use --num-virtual-stages-per-pipeline-rank " +
                                                     std::to_string(kind.num_chunks);
  throw UserError({.what = flag_of(kind) + " needs " + counted(kind.num_chunks, "chunk") +
                           " per rank, got " + std::to_string(num_chunks),
                   .got = {},
                   .fix = fix});
}

void require_group(const ScheduleInfo& kind, const ScheduleRequest& request) {
  const std::int64_t group = request.microbatch_group,
                     most = std::max(request.num_ranks, request.num_microbatches);
  if (group == 0 || (group >= request.num_ranks && group <= most)) return;
  throw UserError(
      {.what = "--microbatch-group-size-per-virtual-pipeline-stage " + std::to_string(group) +
               " does not fit " + flag_of(kind) + " on " +
               counted(request.num_ranks, "pipeline rank") + " with " +
               counted(request.num_microbatches, "microbatch"),
       .got = {},
       .fix = "use " + std::to_string(request.num_ranks) +
              (most == request.num_ranks ? std::string() : " to " + std::to_string(most))});
}

void require_fit(const ScheduleInfo& kind, const ScheduleRequest& request) {
  if (request.num_ranks < 1 || request.num_chunks < 1) {
    throw UserError(
        {.what = flag_of(kind) + " needs at least 1 pipeline rank and 1 chunk per rank, got " +
                 counted(request.num_ranks, "rank") + ", " + counted(request.num_chunks, "chunk"),
         .got = {},
         .fix = "use --pipeline-model-parallel-size 1 or more"});
  }
  require_fixed_chunks(kind, request.num_chunks);
  if (kind.name == "interleaved" && request.num_chunks == 1) {
    throw UserError(
        {.what = flag_of(kind) + " needs at least 2 chunks per rank, got 1",
         .got = {},
         .fix =
             "use --num-virtual-stages-per-pipeline-rank 2 or more, or --pipeline-schedule 1f1b"});
  }
  if (request.num_microbatches < smallest_num_microbatches(request)) {
    throw UserError({.what = flag_of(kind) + " needs at least " +
                             counted(smallest_num_microbatches(request), "microbatch") +
                             " per step, got " + std::to_string(request.num_microbatches),
                     .got = {},
                     .fix = "raise --global-batch-size or lower --micro-batch-size"});
  }
  if (kind.num_chunks == 0) require_group(kind, request);
}

std::int64_t group_of(const ScheduleRequest& request) {
  return request.microbatch_group == 0 ? request.num_ranks : request.microbatch_group;
}

/// Returns the number of microbatches that the generator writes for. RankSteps leaves out those
/// that do not exist.
std::int64_t written_microbatches(const ScheduleInfo& kind, const ScheduleRequest& request) {
  const std::int64_t ranks = request.num_ranks, count = request.num_microbatches;
  if (kind.name == "zb-v") return std::max(count, 2 * ranks - 1);
  if (kind.name == "dualpipe-v") return std::max(count, 2 * ranks);
  // A last group shorter than the pipeline would make ranks wait for each other.
  const std::int64_t rest = count % group_of(request);
  return request.num_chunks > 1 && rest > 0 && rest < ranks ? count - rest + ranks : count;
}

Schedule write(const ScheduleInfo& kind, const ScheduleRequest& request, Generator generator,
               std::int64_t written) {
  Schedule schedule{.name = request.name,
                    .num_ranks = request.num_ranks,
                    .num_chunks = request.num_chunks,
                    .num_microbatches = request.num_microbatches,
                    .order = kind.order,
                    .ranks = {}};
  for (std::int64_t rank = 0; rank < request.num_ranks; ++rank) {
    RankSteps steps(request.num_chunks, request.num_microbatches);
    generator({request.num_ranks, request.num_chunks, written, group_of(request), rank}, steps);
    schedule.ranks.push_back(steps.take());
  }
  return schedule;
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const ScheduleInfo& kind : kSchedules) all.emplace_back(kind.name);
    return all;
  }();
  return names;
}

ChunkOrder chunk_order_of(std::string_view name) { return kind_of(name).order; }

std::int64_t fixed_num_chunks(std::string_view name) { return kind_of(name).num_chunks; }

std::int64_t smallest_num_microbatches(const ScheduleRequest& /*request*/) { return 1; }

Schedule make_schedule(const ScheduleRequest& request) {
  const ScheduleInfo& kind = kind_of(request.name);
  require_fit(kind, request);
  return write(kind, request, kind.generator, written_microbatches(kind, request));
}

Schedule make_forward_schedule(const ScheduleRequest& request) {
  const ScheduleInfo& kind = kind_of(request.name);
  // Evaluation may have fewer microbatches than a group of training.
  ScheduleRequest fitting = request;
  fitting.microbatch_group =
      std::min(request.microbatch_group, std::max(request.num_ranks, request.num_microbatches));
  require_fit(kind, fitting);
  return write(kind, fitting, kind.order == ChunkOrder::v ? forward_in_v : forward_in_groups,
               request.num_microbatches);
}

}  // namespace megatron
