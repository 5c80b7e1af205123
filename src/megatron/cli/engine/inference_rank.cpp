#include "megatron/cli/engine/inference_rank.h"

#include <ATen/Parallel.h>

#include <iostream>

#include "megatron/base/cpu_affinity.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/merge_architecture.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/problems.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/input_ids.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"

namespace megatron {

InferenceRank::InferenceRank(World& world, const ModelOptions& options, const SettingsText& flags,
                             const ModelFamilies& families)
    : context_(world, options.parallel, {.flags = flags}), rank_(context_.place(options.parallel)) {
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

}  // namespace megatron
