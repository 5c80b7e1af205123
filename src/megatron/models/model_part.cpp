#include "megatron/models/model_part.h"

#include <algorithm>
#include <utility>

namespace megatron {
namespace {

/// Returns whether rows pass between stage `place` - 1 and stage `place`.
bool is_inside(const PipelineLayout& layout, std::int64_t place) {
  const auto end = layout.stages.begin() + place;
  return std::any_of(layout.stages.begin(), end,
                     [](const StageLayers& stage) { return stage.has_embedding; }) &&
         std::none_of(layout.stages.begin(), end,
                      [](const StageLayers& stage) { return stage.has_output; });
}

}  // namespace

std::int64_t stage_with(const PipelineLayout& layout, bool StageLayers::*end) {
  return std::ranges::find_if(layout.stages, [&](const StageLayers& stage) { return stage.*end; }) -
         layout.stages.begin();
}

StageHolders stage_holders(const PipelineLayout& layout, std::int64_t pipeline_rank,
                           const std::function<bool(const StageLayers&)>& declares) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t stage = 0; stage < std::ssize(layout.stages); ++stage) {
    if (declares(layout.stages[static_cast<std::size_t>(stage)]))
      ranks.push_back(rank_of(layout.order, layout.num_ranks, stage));
  }
  const bool is_owner = ranks.empty() || ranks.front() == pipeline_rank;
  std::ranges::sort(ranks);
  ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
  return {.ranks = std::move(ranks), .is_owner = is_owner};
}

ModelPart model_part(const PipelineLayout& layout, std::int64_t pipeline_rank) {
  ModelPart part;
  for (std::int64_t chunk = 0; chunk < layout.num_chunks; ++chunk) {
    const StageLayers& stage = layout.of(pipeline_rank, chunk);
    const std::int64_t place = stage_of(layout.order, layout.num_ranks, pipeline_rank, chunk);
    part.chunks.push_back({.stage = stage,
                           .receives_hidden = is_inside(layout, place),
                           .sends_hidden = is_inside(layout, place + 1)});
    part.has_embedding = part.has_embedding || stage.has_embedding;
    part.has_output = part.has_output || stage.has_output;
  }
  part.ends = stage_holders(layout, pipeline_rank, [](const StageLayers& stage) {
    return stage.has_embedding || stage.has_output;
  });
  return part;
}

}  // namespace megatron
