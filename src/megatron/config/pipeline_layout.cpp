#include "megatron/config/pipeline_layout.h"

#include <algorithm>
#include <numeric>

#include "megatron/base/error.h"
#include "megatron/config/balance.h"
#include "megatron/config/layout_string.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/schedules/make_schedule.h"

namespace megatron {
namespace {

using Counts = std::vector<std::int64_t>;

std::string text_of(std::int64_t value) { return std::to_string(value); }

/// Returns the number of chunks per rank that the schedule implies, or 0 if it allows any.
std::int64_t implied_chunks(const ParallelConfig& parallel) {
  const std::string& name = parallel.pipeline_schedule;
  return name.empty() || name == "auto" ? 0 : fixed_num_chunks(name);
}

ChunkOrder order_of(const ParallelConfig& parallel) {
  const std::string& name = parallel.pipeline_schedule;
  return name.empty() || name == "auto" ? ChunkOrder::loop : chunk_order_of(name);
}

std::int64_t num_extra_units(const ParallelConfig& parallel) {
  return static_cast<std::int64_t>(parallel.account_for_embedding_in_pipeline_split) +
         static_cast<std::int64_t>(parallel.account_for_loss_in_pipeline_split);
}

std::int64_t rounded_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t chunks_of_layout(const ParallelConfig& parallel) {
  const auto num_stages = static_cast<std::int64_t>(
      parse_layout_string(parallel.pipeline_model_parallel_layout).size());
  const std::int64_t p = parallel.pipeline_model_parallel_size;
  if (num_stages % p == 0) return num_stages / p;
  throw UserError({"--pipeline-model-parallel-layout",
                   "has " + text_of(num_stages) +
                       " stages, no multiple of --pipeline-model-parallel-size " + text_of(p),
                   "add or remove a | (which ends a stage); a stage may be empty"});
}

std::int64_t chunks_of_size(const ParallelConfig& parallel, std::int64_t num_layers) {
  const std::int64_t size = *parallel.num_layers_per_virtual_pipeline_stage,
                     p = parallel.pipeline_model_parallel_size;
  const std::int64_t units = num_layers + num_extra_units(parallel), most = rounded_up(units, p);
  if (size <= most) return rounded_up(units, p * size);
  throw UserError({"--num-layers-per-virtual-pipeline-stage",
                   text_of(size) + " is more than the " + text_of(most) +
                       (most == 1 ? " layer" : " layers") + " of a rank (" + text_of(num_layers) +
                       " layers, --pipeline-model-parallel-size " + text_of(p) + ")",
                   "use at most " + text_of(most) + ", or leave it out"});
}

/// Divides `num_units` evenly among `num_stages` stages; the remainder goes to stages in the
/// middle. In V order it goes to the stages before the turning point, as long as no rank receives
/// two.
Counts spread(std::int64_t num_units, std::int64_t num_stages, ChunkOrder order) {
  const std::int64_t each = num_units / num_stages, odd = num_units % num_stages;
  const bool before_turn = order == ChunkOrder::v && odd <= num_stages / 2;
  const std::int64_t begin = before_turn ? num_stages / 2 - odd : (num_stages - odd) / 2;
  Counts counts(static_cast<std::size_t>(num_stages), each);
  std::for_each_n(counts.begin() + begin, odd, [](std::int64_t& count) { ++count; });
  return counts;
}

Counts even_counts(const ParallelConfig& parallel, std::int64_t num_layers,
                   const PipelineLayout& layout) {
  Counts counts = spread(num_layers + num_extra_units(parallel),
                         layout.num_ranks * layout.num_chunks, layout.order);
  counts.front() -= static_cast<std::int64_t>(parallel.account_for_embedding_in_pipeline_split);
  counts.back() -= static_cast<std::int64_t>(parallel.account_for_loss_in_pipeline_split);
  return counts;
}

/// Assigns these layers to the stages of the ranks from `begin` to `end`.
void fill(Counts& counts, const PipelineLayout& layout, std::int64_t begin, std::int64_t end,
          std::int64_t num_layers) {
  const Counts some = spread(num_layers, (end - begin) * layout.num_chunks, layout.order);
  auto next = some.begin();
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    const std::int64_t rank =
        rank_of(layout.order, layout.num_ranks, static_cast<std::int64_t>(stage));
    if (rank >= begin && rank < end) counts[stage] = *next++;
  }
}

/// Returns the flags that are given, with their values.
std::string ends_text(const ParallelConfig& parallel) {
  std::string text;
  if (parallel.decoder_first_pipeline_num_layers)
    text = "--decoder-first-pipeline-num-layers " +
           text_of(*parallel.decoder_first_pipeline_num_layers);
  if (!parallel.decoder_last_pipeline_num_layers) return text;
  return text + (text.empty() ? "" : " and ") + "--decoder-last-pipeline-num-layers " +
         text_of(*parallel.decoder_last_pipeline_num_layers);
}

/// Assigns layers to the first and the last rank as the flags say, and the rest evenly.
Counts counts_with_ends(const ParallelConfig& parallel, std::int64_t num_layers,
                        const PipelineLayout& layout) {
  const auto& first = parallel.decoder_first_pipeline_num_layers;
  const auto& last = parallel.decoder_last_pipeline_num_layers;
  const std::int64_t begin = first ? 1 : 0, end = layout.num_ranks - (last ? 1 : 0);
  const std::int64_t rest = num_layers - first.value_or(0) - last.value_or(0);
  if (rest < 0 || (begin == end && rest > 0)) {
    throw UserError({ends_text(parallel),
                     rest < 0 ? "is more than --num-layers " + text_of(num_layers)
                              : "leaves " + text_of(rest) + " of --num-layers " +
                                    text_of(num_layers) + " without a rank",
                     "choose numbers that sum to --num-layers, or give one of them"});
  }
  Counts counts(static_cast<std::size_t>(layout.num_ranks * layout.num_chunks));
  if (first) fill(counts, layout, 0, begin, *first);
  if (last) fill(counts, layout, end, layout.num_ranks, *last);
  if (begin < end) fill(counts, layout, begin, end, rest);
  return counts;
}

std::string stages_text(const PipelineLayout& layout) {
  std::string ranks = "--pipeline-model-parallel-size " + text_of(layout.num_ranks);
  if (layout.num_chunks == 1) return ranks;
  return text_of(layout.num_ranks * layout.num_chunks) + " stages (" + ranks + " x " +
         text_of(layout.num_chunks) + " chunks)";
}

[[noreturn]] void fail_empty(const ParallelConfig& parallel, std::int64_t num_layers,
                             const PipelineLayout& layout, std::int64_t num_empty) {
  const std::string ends = ends_text(parallel);
  throw UserError({"--num-layers",
                   text_of(num_layers) + " in " + stages_text(layout) +
                       (ends.empty() ? "" : " with " + ends) + " leaves " + text_of(num_empty) +
                       (num_empty == 1 ? " stage" : " stages") + " without a layer",
                   "use fewer stages, or assign the layers with --pipeline-model-parallel-layout"});
}

void check_no_stage_is_empty(const ParallelConfig& parallel, std::int64_t num_layers,
                             const PipelineLayout& layout, const Counts& counts) {
  const bool may_be_first = parallel.account_for_embedding_in_pipeline_split,
             may_be_last = parallel.account_for_loss_in_pipeline_split;
  const auto begin = counts.begin() + (may_be_first ? 1 : 0),
             end = counts.end() - (may_be_last && counts.size() > 1 ? 1 : 0);
  const auto num_empty = std::count(begin, std::max(begin, end), 0);
  if (num_empty > 0) fail_empty(parallel, num_layers, layout, num_empty);
}

/// Numbers the layers consecutively in the order of the model and puts the embedding and the output
/// into the first and the last stage.
std::vector<StageLayers> stages_of(const Counts& counts) {
  std::vector<StageLayers> stages;
  std::int64_t first = 0;
  for (const std::int64_t count : counts) {
    stages.push_back({.first_layer = first, .num_layers = count});
    first += count;
  }
  stages.front().has_embedding = stages.back().has_output = true;
  return stages;
}

/// What is assigned to stages. Each depth of multi-token prediction has `depth_layers` layers.
struct AssignedLayers {
  std::int64_t num_layers = 0;
  std::int64_t num_depths = 0, depth_layers = 1;

  std::int64_t num_mtp() const { return num_depths * depth_layers; }
};

std::vector<StageLayers> stages_of_layout(const ParallelConfig& parallel,
                                          const AssignedLayers& layers) {
  std::vector<StageLayers> stages = parse_layout_string(parallel.pipeline_model_parallel_layout);
  std::int64_t depths = 0;
  for (const StageLayers& stage : stages) depths += stage.num_mtp;
  const std::int64_t named = stages.back().first_layer + stages.back().num_layers - depths;
  const auto expect = [](std::int64_t found, const std::string& what, std::int64_t number,
                         const char* fix) {
    if (found != number)
      throw UserError({"--pipeline-model-parallel-layout",
                       "names " + text_of(found) + what + " is " + text_of(number), fix});
  };
  expect(named, " layers (t), --num-layers", layers.num_layers, "write one t for each layer");
  expect(depths, " layers of multi-token prediction (m), --mtp-num-layers", layers.num_depths,
         "write one m for each, between the layers and L");
  std::int64_t shift = 0;  // of the stages behind that of the depths
  for (StageLayers& stage : stages) {
    stage.first_layer += shift;
    const std::int64_t more = stage.num_mtp * (layers.depth_layers - 1);
    stage.num_mtp += more;
    stage.num_layers += more;
    shift += more;
  }
  return stages;
}

void check_chunks(const ParallelConfig& parallel, const PipelineLayout& layout) {
  const std::string& name = parallel.pipeline_schedule;
  const std::int64_t fixed = implied_chunks(parallel);
  const bool needs_several = name == "interleaved" && layout.num_chunks == 1;
  if (!needs_several && (fixed == 0 || fixed == layout.num_chunks)) return;
  const std::string has =
      layout.num_chunks == 1 ? "one chunk" : text_of(layout.num_chunks) + " chunks";
  if (needs_several) {
    throw UserError(
        {"--pipeline-schedule interleaved", "needs several chunks per rank, and there is one",
         "add --num-virtual-stages-per-pipeline-rank N above 1, or use --pipeline-schedule 1f1b"});
  }
  throw UserError(
      {"--pipeline-schedule " + name,
       "works with " + (fixed == 1 ? std::string("one chunk") : text_of(fixed) + " chunks") +
           " per rank, and the flags make " + has,
       fixed == 1 ? "use --pipeline-schedule interleaved, or leave the virtual stages out"
                  : "leave the virtual stages out: they are implied"});
}

/// Assigns the layers but those of multi-token prediction.
std::vector<StageLayers> cut(const ParallelConfig& parallel, std::int64_t num_layers,
                             const PipelineLayout& layout, const LayerCosts* measured) {
  const std::int64_t num_stages = layout.num_ranks * layout.num_chunks,
                     num_units = num_layers + num_extra_units(parallel);
  if (num_stages > num_units) fail_empty(parallel, num_layers, layout, num_stages - num_units);
  if (parallel.pipeline_split == "measured" && num_stages > 1) {
    MEGATRON_CHECK(measured != nullptr, "--pipeline-split measured without measurements");
    return balanced_stages(num_layers, *measured, layout.num_ranks, layout.num_chunks,
                           layout.order);
  }
  const bool has_ends =
      parallel.decoder_first_pipeline_num_layers || parallel.decoder_last_pipeline_num_layers;
  const Counts counts = has_ends && layout.num_ranks > 1
                            ? counts_with_ends(parallel, num_layers, layout)
                            : even_counts(parallel, num_layers, layout);
  check_no_stage_is_empty(parallel, num_layers, layout, counts);
  return stages_of(counts);
}

PipelineLayout layout_of(const ParallelConfig& parallel, const AssignedLayers& layers,
                         const LayerCosts* measured) {
  const std::int64_t num_layers = layers.num_layers, num_mtp = layers.num_mtp();
  PipelineLayout layout{.num_ranks = parallel.pipeline_model_parallel_size,
                        .num_chunks = num_pipeline_chunks(parallel, num_layers),
                        .order = order_of(parallel)};
  check_chunks(parallel, layout);
  if (!parallel.pipeline_model_parallel_layout.empty()) {
    layout.stages = stages_of_layout(parallel, layers);
  } else {
    layout.stages = cut(parallel, num_layers, layout, measured);
    layout.stages.back().num_mtp = num_mtp;
    layout.stages.back().num_layers += num_mtp;
  }
  const std::int64_t sum =
      std::accumulate(layout.stages.begin(), layout.stages.end(), std::int64_t{0},
                      [](std::int64_t n, const StageLayers& s) { return n + s.num_layers; });
  MEGATRON_CHECK(sum == num_layers + num_mtp, "the stages hold ", sum, " of ", num_layers + num_mtp,
                 " layers");
  return layout;
}

}  // namespace

std::int64_t StageLayers::num_embeddings(const TransformerConfig& model) const {
  return (has_embedding ? 1 : 0) + num_mtp / model.mtp_depth_layers;
}

PipelineLayout single_stage_layout(std::int64_t num_layers, std::int64_t num_mtp) {
  return {.stages = {{.num_layers = num_layers + num_mtp,
                      .num_mtp = num_mtp,
                      .has_embedding = true,
                      .has_output = true}}};
}

std::int64_t num_pipeline_chunks(const ParallelConfig& parallel, std::int64_t num_layers) {
  if (!parallel.pipeline_model_parallel_layout.empty()) return chunks_of_layout(parallel);
  if (parallel.num_virtual_stages_per_pipeline_rank)
    return *parallel.num_virtual_stages_per_pipeline_rank;
  if (parallel.num_layers_per_virtual_pipeline_stage) return chunks_of_size(parallel, num_layers);
  return std::max<std::int64_t>(1, implied_chunks(parallel));
}

std::string schedule_name(const ParallelConfig& parallel, std::int64_t num_layers) {
  if (!parallel.pipeline_schedule.empty()) return parallel.pipeline_schedule;
  return num_pipeline_chunks(parallel, num_layers) > 1 ? "interleaved" : "1f1b";
}

PipelineLayout pipeline_layout(const ParallelConfig& parallel, const TransformerConfig& model,
                               const LayerCosts* measured) {
  return layout_of(parallel,
                   {.num_layers = model.num_layers,
                    .num_depths = model.mtp_num_layers,
                    .depth_layers = model.mtp_depth_layers},
                   measured);
}

PipelineLayout pipeline_layout(const ParallelConfig& parallel, std::int64_t num_layers,
                               const LayerCosts* measured) {
  return layout_of(parallel, {.num_layers = num_layers}, measured);
}

}  // namespace megatron
