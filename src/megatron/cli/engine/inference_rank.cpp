#include "megatron/cli/engine/inference_rank.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "megatron/base/cpu_affinity.h"
#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/merge_architecture.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/problems.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_flags.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/engine_options.h"
#include "megatron/inference/input_ids.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/observability/tensor_memory.h"

namespace megatron {

InferenceRank::InferenceRank(World& world, const ModelOptions& options, const SettingsText& flags,
                             const ModelFamilies& families)
    : context_(world, options.parallel, {.flags = flags}),
      rank_(context_.place(options.parallel)),
      families_(families) {
  keep_freed_memory();
  at::set_num_threads(bind_to_cpus(context_.in_world().cpus, /*pins=*/rank_.device.is_cpu()));
  loaded_.emplace(load_model(options.load, options.ckpt_step,
                             {.rank = rank_,
                              .parallel = options.parallel,
                              .type = requested_dtype(options),
                              .packs_weights = true,
                              .cache_mla_latents = options.cache_mla_latents,
                              .families = &families}));
  Settings settings;
  settings.parallel = options.parallel;
  Settings run = options.run;
  ParseResult parsed = options.parsed;
  parsed.notes.clear();  // they are printed already
  Problems problems;
  translate_rope_flags(run, parsed, problems, &loaded_->source.model);
  problems.throw_if_any();
  settings.model = merge_architecture(loaded_->source, *run.model, parsed);
  if (!is_main_rank()) return;
  add_notes(notes_on_flags(settings, *run.model, parsed), parsed.notes);
  std::cerr << notes_text(parsed.notes);
  for (const std::string& note : loaded_->source.notes) std::cerr << "note: " << note << '\n';
}

LoadedModel InferenceRank::load_draft(const std::string& folder,
                                      const ModelOptions& options) const {
  // Layers of the pipeline that are counted are those of the first model.
  ParallelConfig parallel = options.parallel;
  const ParallelConfig defaults;
  parallel.num_virtual_stages_per_pipeline_rank = defaults.num_virtual_stages_per_pipeline_rank;
  parallel.decoder_first_pipeline_num_layers = defaults.decoder_first_pipeline_num_layers;
  parallel.decoder_last_pipeline_num_layers = defaults.decoder_last_pipeline_num_layers;
  parallel.pipeline_model_parallel_layout = defaults.pipeline_model_parallel_layout;
  const std::string flag = "--speculative-model";
  try {
    return load_model(folder, std::nullopt,
                      {.rank = rank_,
                       .parallel = parallel,
                       .type = requested_dtype(options),
                       .packs_weights = true,
                       .families = &families_,
                       .flag = flag});
  } catch (const UserError& error) {  // which may name a file, or a flag that does not suit it
    const auto& [what, got, fix] = error.parts();
    throw UserError({what.starts_with(flag) ? what : flag + " " + folder + ": " + what, got, fix});
  }
}

LoadedTokenizer InferenceRank::load_tokenizer(const TokenizerConfig& flags,
                                              const ParseResult& parsed) const {
  LoadedTokenizer loaded =
      megatron::load_tokenizer(tokenizer_flags(flags, parsed), loaded_->source);
  for (const std::string& note : loaded.notes)
    if (is_main_rank()) std::cerr << "note: " << note << "\n";
  return loaded;
}

std::int64_t InferenceRank::max_model_len(const ModelOptions& options,
                                          const EngineOptions& engine) const {
  const TransformerConfig& config = model().config();
  return std::min({options.engine.max_seq_length.value_or(context_length(config)),
                   max_sequence_length(config),
                   engine.scheduler.num_blocks * engine.scheduler.block_size});
}

EngineOptions InferenceRank::engine_options(const ModelOptions& options,
                                            const SpeculativeConfig& speculative) {
  const EngineSettings& settings = options.engine;
  SpeculationOptions speculation{.config = speculative};
  if (speculative.method() == SpeculativeMethod::draft_model)
    speculation.draft_model =
        &draft_.emplace(load_draft(speculative.speculative_model, options)).runner;
  make_drafter(speculation, model());  // which refuses what it cannot serve
  if (speculative.num_speculative_tokens > 0) speculation.stats = &speculation_stats_.emplace();
  check_batch_invariance(settings, model().config(), rank_.device, loaded_->type);
  const std::vector<double> own{
      cache_block_bytes(model(), kv_cache_type(settings), speculation),
      free_cache_bytes(settings, rank_.device, context_.in_world().ranks_on_host),
      cache_state_bytes(model())};
  std::vector<CacheBudget> budgets;
  for (const std::vector<double>& one :
       all_gather_numbers({rank_.world, rank_.device}, own, "memory of the KV cache"))
    budgets.push_back({.block_bytes = one[0], .free_bytes = one[1], .state_bytes = one[2]});
  ChosenOptions chosen = megatron::engine_options(settings, model().config(), budgets);
  if (is_main_rank() && !chosen.note.empty()) std::cerr << "note: " << chosen.note << "\n";
  chosen.options.speculation = std::move(speculation);
  return std::move(chosen.options);
}

ServingRanks InferenceRank::serving_ranks() const {
  const std::int64_t count = dp_ranks_per_replica();
  MEGATRON_CHECK(count == 1 || rank_.etp_ep.size == count * rank_.tp_cp.size,
                 "experts are divided over ", rank_.etp_ep.size, " ranks, no multiple of tp x cp ",
                 rank_.tp_cp.size);
  return {.axis = count == 1 ? rank_.replica : rank_.expert_model, .device = rank_.device};
}

ServingRanks InferenceRank::replica_leaders() const {
  return {.axis = dp_ranks_per_replica() == 1 ? rank_.dp : rank_.edp, .device = rank_.device};
}

void InferenceRank::note_speculation() const {
  if (speculation_stats_ && is_main_rank())
    std::cerr << "note: " << speculation_stats_->summary() << "\n";
}

void InferenceRank::note_length(std::int64_t length, const std::string& text) {
  if (!is_replica_leader() || has_noted_length_) return;
  const std::string note = long_sequence_warning(model().config(), length, text);
  has_noted_length_ = !note.empty();
  if (has_noted_length_) std::cerr << "note: " << note << "\n";
}

std::vector<std::string> InferenceRank::broadcast(const std::vector<std::string>& texts) const {
  return broadcast_strings({rank_.world, rank_.device}, texts);
}
std::vector<std::string> InferenceRank::gather(const std::string& text) const {
  return all_gather_strings({rank_.dp, rank_.device}, is_replica_leader() ? text : "");
}
std::vector<double> InferenceRank::sum(std::vector<double> numbers) const {
  if (!is_replica_leader()) std::ranges::fill(numbers, 0);
  return all_reduce_sum({rank_.dp, rank_.device}, std::move(numbers), "results of replicas");
}

}  // namespace megatron
