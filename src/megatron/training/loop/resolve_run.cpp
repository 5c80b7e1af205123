// Implements the step of set_up() that resolves settings, mesh and pipeline.
#include <algorithm>
#include <ostream>
#include <sstream>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/collective_steps.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/merge_architecture.h"
#include "megatron/checkpoint/other_family.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/context_sizes.h"
#include "megatron/config/data_config.h"
#include "megatron/config/data_phase.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/problems.h"
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/config/validate_settings.h"
#include "megatron/config/world_rules.h"
#include "megatron/datasets/blend_phases.h"
#include "megatron/datasets/labelled_texts.h"
#include "megatron/datasets/sample_counts.h"
#include "megatron/models/freeze.h"
#include "megatron/models/model_cost.h"
#include "megatron/models/model_spec.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/store_options.h"
#include "megatron/pipeline/overlapped_pair.h"
#include "megatron/planner/plan_pipeline.h"
#include "megatron/planner/run_costs.h"
#include "megatron/tokenizers/tokenizer_files.h"
#include "megatron/training/loop/setup.h"
#include "megatron/training/run/open_offload_store.h"
#include "megatron/training/saving/choose_checkpoint.h"

namespace megatron {
namespace {

constexpr std::int64_t kOverlapChunks = 4;  ///< GEMM chunks with --tp-comm-overlap

/// Returns a copy of the settings. With --skip-train it has no save folders, because they belong to
/// the run that trained.
Settings run_settings(const RunConfig& run) {
  Settings settings = run.options.settings;
  if (!settings.training->skip_train) return settings;
  settings.checkpoint->save.clear();
  settings.logger->tensorboard_dir.clear();
  return settings;
}

Mesh make_mesh(const Settings& settings, const Communicators* communicators) {
  const std::int64_t world_size = communicators != nullptr ? communicators->world_size() : 1;
  check_world(settings, world_size).throw_if_any();
  return {mesh_sizes(*settings.parallel), world_size};
}

/// Returns this rank with its axes.
Rank place_rank(const Settings& settings, const Mesh& mesh, const RankContext& world) {
  const ParallelConfig& parallel = *settings.parallel;
  const RankOptions options{.device = world.device->device,
                            .seed = static_cast<std::uint64_t>(settings.training->seed),
                            .sequence_parallel = parallel.sequence_parallel,
                            .cp_a2a_size = cp_a2a_size(parallel),
                            .hybrid_cp = parallel.hybrid_context_parallel};
  Rank rank = world.communicators != nullptr ? make_rank(mesh, *world.communicators, options)
                                             : make_rank(mesh, 0, options);
  rank.tp_options = {
      .async_allreduce = !parallel.no_async_tensor_model_parallel_allreduce,
      .overlap_chunks = parallel.tp_comm_overlap && rank.tp.size > 1 ? kOverlapChunks : 1};
  return rank;
}

/// Opens the tokenizer that the settings name. Without a type, it is a tokenizer of plain ids with
/// --vocab-size or the loaded model's vocabulary. In the latter BERT's may find no room for [BOS]
/// and [EOS], which checkpoints keep as --vocab-size.
std::unique_ptr<Tokenizer> open_tokenizer(Settings& settings) {
  TokenizerConfig config = *settings.tokenizer;
  const std::int64_t size = settings.model->vocab_size;
  if (!has_tokenizer(config) && !config.vocab_size)
    config.vocab_size = size;
  else if (size > 0 && !config.vocab_size && tokenizer_type(config).starts_with("BertWordPiece"))
    config.vocab_size = settings.tokenizer->vocab_size = size;
  return make_tokenizer(config, "NullTokenizer");
}

struct RunTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  AuxiliaryFiles files;
};

/// Opens the tokenizer on every rank; rank 0 also reads its files, which checkpoints include. If
/// one rank fails, all ranks stop here.
RunTokenizer read_tokenizer(Settings& settings, const Rank& rank) {
  RunTokenizer result;
  CollectiveSteps(rank.world, rank.device).run_on_all_ranks([&] {
    result.tokenizer = open_tokenizer(settings);
    if (rank.world.rank == 0) result.files = tokenizer_files(*settings.tokenizer);
    return std::string();
  });
  return result;
}

/// Sets the model's vocabulary size: the checkpoint's, else --vocab-size, else the tokenizer's, the
/// last two with --vocab-extra-ids if these ids follow the vocabulary. UserError when the
/// tokenizer's is larger than the first two.
void resolve_vocab_size(Settings& settings, const Tokenizer& tokenizer) {
  std::int64_t& size = settings.model->vocab_size;
  const bool is_loaded = size > 0;
  const TokenizerConfig& given = *settings.tokenizer;
  const std::int64_t extra =
                         tokenizer.find(sentinel_token(0)) < 0 ? settings.data->vocab_extra_ids : 0,
                     ids = tokenizer.vocab_size() + extra;
  if (!is_loaded)
    size =
        given.padded_vocab_size.value_or(given.vocab_size.value_or(tokenizer.vocab_size()) + extra);
  if (given.padded_vocab_size && *given.padded_vocab_size < size) {
    throw UserError({"--padded-vocab-size " + std::to_string(*given.padded_vocab_size),
                     "is less than the loaded model's vocabulary of " + std::to_string(size),
                     "leave --padded-vocab-size out"});
  }
  if (ids <= size) return;
  if (given.padded_vocab_size == size) {
    throw UserError({"--padded-vocab-size " + std::to_string(size),
                     "is less than the tokenizer's " + std::to_string(ids) + " ids",
                     "raise it to at least " + std::to_string(ids)});
  }
  throw UserError({"the tokenizer has " + std::to_string(ids) + " ids",
                   "the model's vocabulary has " + std::to_string(size),
                   is_loaded ? "use the tokenizer of the loaded model"
                             : "leave --vocab-size out, or make it as large as the tokenizer's"});
}

/// Warns that a loaded model keeps its own vocabulary size when --padded-vocab-size differs.
void warn_of_padded_vocab_size(const Settings& settings, StartupWarnings& warnings,
                               std::ostream& out) {
  const auto padded = settings.tokenizer->padded_vocab_size;
  const std::int64_t size = settings.model->vocab_size;
  if (!padded || *padded == size) return;
  warnings.add("--padded-vocab-size " + std::to_string(*padded) +
                   " has no effect: the loaded model's vocabulary size is " + std::to_string(size),
               out);
}

/// Refuses new routers that cannot learn from the loss of the language model, and warns of loaded
/// ones.
void check_router_gradient(const Settings& settings, bool is_new, StartupWarnings& warnings,
                           std::ostream& out) {
  const Problems problems = evaluate(new_router_rules(), settings, {});
  if (problems.empty()) return;
  if (is_new) problems.throw_if_any();
  warnings.add(
      "the softmax over one selected expert is always 1: the loaded model's routers learn from "
      "auxiliary losses alone",
      out);
}

/// Returns whether training continues with the rotary frequencies that flags give: in a new run,
/// and where a phase of the data begins.
bool may_change_rotary(const Settings& settings, const CheckpointSource& source) {
  return settings.checkpoint->finetune ||
         (!source.is_release && is_phase_transition(*settings.training, source.iteration));
}

/// Warns of rotary frequencies that differ from those of the loaded model. `trained` is its
/// architecture.
void warn_of_rotary_change(const TransformerConfig& trained, const TransformerConfig& model,
                           StartupWarnings& warnings, std::ostream& out) {
  const std::string differences = rotary_differences(trained, model);
  if (differences.empty()) return;
  std::string text = "the loaded model was trained with other rotary frequencies: " + differences;
  const std::int64_t length = trained.max_position_embeddings;
  const auto has_original = [](const TransformerConfig& config) {
    return config.rope_scaling_type == RopeScaling::llama3 ||
           config.rope_scaling_type == RopeScaling::yarn;
  };
  const bool names_another = has_original(model) && !has_original(trained) && length > 0 &&
                             model.rope_original_max_position_embeddings != length;
  if (names_another)
    text += "; the scaling assumes sequences of " +
            std::to_string(model.rope_original_max_position_embeddings) +
            " tokens before, the checkpoint names " + std::to_string(length) +
            " (--rope-original-max-position-embeddings " + std::to_string(length) + ")";
  warnings.add(std::move(text), out);
}

/// Returns a checkpoint of another family with the names of this run's model. Only --finetune,
/// which begins a new run, asks for that. Encoders and decoders have no names in common.
CheckpointSource in_run_family(const CheckpointSource& source, const Settings& settings,
                               const ModelFamily& family) {
  const auto& known = library_families().all();
  const auto own = std::ranges::find(known, source.family, &ModelFamily::name);
  const bool is_akin = own == known.end() || own->sample_kind == family.sample_kind;
  if (is_akin && settings.checkpoint->finetune) return in_family(source, family.name);
  throw UserError({source.folder.string() + ": holds a model of the family " + source.family,
                   "this run trains a model of the family " + family.name,
                   "continue with `megatron pretrain " + source.family + '`' +
                       (is_akin ? ", or add --finetune to start from its weights" : "")});
}

/// Returns what --load holds, or else what --pretrained-checkpoint does, whose weights begin a run.
std::optional<CheckpointSource> choose_source(CheckpointConfig& config, const Rank& rank,
                                              StartupWarnings& warnings, std::ostream& out,
                                              const std::string& needed_by) {
  if (config.pretrained_checkpoint.empty())
    return choose_checkpoint(config, rank, warnings, out, needed_by);
  CheckpointConfig own = config;  // whose checkpoint may be missing
  own.finetune = own.exit_on_missing_checkpoint = false;
  StartupWarnings of_missing;  // that a run starts from random does not hold
  std::ostringstream remarks;
  auto source = choose_checkpoint(own, rank, of_missing, remarks);
  if (source) {
    out << remarks.str();
    return source;
  }
  config.load = config.pretrained_checkpoint;
  config.finetune = true;
  return choose_checkpoint(config, rank, warnings, out, needed_by);
}

/// Sets the classes and the choices of --task, which rank 0 counts in the data. Their names go with
/// the loaded model's files. One with other heads keeps its encoder with --finetune.
void resolve_task(RunConfig& run, Settings& settings, std::optional<CheckpointSource>& source,
                  const Rank& rank, std::ostream& out) {
  DataConfig& data = *settings.data;
  std::int64_t& num_classes = run.options.settings.model->num_classes;
  if (data.task == FinetuneTask::none) return;
  std::istringstream counted(CollectiveSteps(rank.world, rank.device).run_on_rank_0([&] {
    const LabelledData found = read_labelled_data(data);
    if (source && !found.classes.empty()) set_class_names(found.classes, source->auxiliary_files);
    return std::to_string(found.num_classes) + " " + std::to_string(found.num_choices) +
           (found.classes.empty() ? "" : " " + joined_text(found.classes));
  }));
  std::int64_t classes_of_data = 0;
  std::string names;
  std::getline(counted >> classes_of_data >> data.num_choices, names);
  if (!names.empty()) out << "> classes 0 to " << classes_of_data - 1 << ":" << names << std::endl;
  const std::int64_t loaded = source ? source->model.num_classes : 0;
  const bool is_alike = loaded > 0 && (loaded == 1) == ranks_choices(data.task);
  // Names are numbered in their order, and the model has learned numbers.
  if (num_classes == 0 && is_alike && !names.empty() && classes_of_data < loaded)
    throw UserError({"the data of --task name " + std::to_string(classes_of_data) + " classes",
                     "the loaded model has " + std::to_string(loaded) +
                         ", and a missing one changes the numbers of others",
                     "write the labels as the numbers that the model was trained with, or add "
                     "--num-classes " +
                         std::to_string(loaded) + " if only the last are missing"});
  if (num_classes == 0) num_classes = is_alike ? loaded : classes_of_data;
  if (num_classes > 1 && classes_of_data > num_classes)
    throw UserError({"the data of --task have " + std::to_string(classes_of_data) + " classes",
                     "the model has " + std::to_string(num_classes),
                     "raise --num-classes, or finetune a model without classes"});
  if (!source || loaded == num_classes) return;
  if (!settings.checkpoint->finetune)
    throw UserError({source->folder.string(), "holds a model with other heads than --task trains",
                     "add --finetune to keep its encoder and begin a new head"});
  source->model.num_tokentypes = source->model.token_types();
  source->model.num_classes = num_classes;
  source->replaces_heads = true;
}

/// Sets the architecture from the checkpoint and the flags.
void merge_model(Settings& settings, const CheckpointSource& source, const ParseResult& parsed,
                 StartupWarnings& warnings, std::ostream& out) {
  TransformerConfig& model = *settings.model;
  model = merge_architecture(source, model, parsed,
                             {.replaces_rotary_frequencies = may_change_rotary(settings, source)});
  const bool has_learned = model.position_embedding_type == PositionEmbedding::learned_absolute;
  if (!has_learned && !parsed.is_set("max_position_embeddings"))
    model.max_position_embeddings =
        std::max(model.max_position_embeddings, settings.training->seq_length);
  if (source.kind == CheckpointSource::Kind::hugging_face && !settings.training->skip_train)
    out << "training with " << training_origins(source, model, parsed) << std::endl;
  warn_of_rotary_change(source.model, model, warnings, out);
}

/// Sets the length of a run with --train-epochs. Rank 0 counts the samples.
void resolve_epochs(Settings& settings, const std::shared_ptr<const Tokenizer>& tokenizer,
                    const Rank& rank, std::ostream& out) {
  if (!settings.training->train_epochs || settings.training->skip_train) return;
  const EpochCountOptions options{.tokenizer = tokenizer,
                                  .row_multiple = rank.cp.size > 1 ? 2 * rank.cp.size : 1};
  const std::int64_t samples =
      std::stoll(CollectiveSteps(rank.world, rank.device).run_on_rank_0([&] {
        return std::to_string(samples_of_train_epochs(settings, options));
      }));
  set_run_length(settings, samples, rank.dp.size);
  out << epochs_line(settings, samples) << std::endl;
}

/// Translates the flags of rotary positions that waited for the loaded model, or for its absence.
void translate_rope(RunConfig& run, const TransformerConfig* loaded, StartupWarnings& warnings,
                    std::ostream& out) {
  run.parsed.notes.clear();  // they are printed already
  Problems problems;
  translate_rope_flags(run.options.settings, run.parsed, problems, loaded);
  problems.throw_if_any();
  for (const auto& [remark, flags] : run.parsed.notes)
    warnings.add(joined_text(flags) + ": " + remark, out);
}

/// Warns of flags without effect on a loaded model. Without --load the flags alone have told it.
void warn_of_notes(const Settings& settings, const RunConfig& run, StartupWarnings& warnings,
                   std::ostream& out) {
  const Settings& given = run.options.settings;
  if (given.checkpoint->load.empty()) return;
  for (const auto& [remark, flags] : notes_on_flags(settings, *given.model, run.parsed))
    warnings.add(joined_text(flags) + ": " + remark, out);
}

/// Derives the settings that depend on others, and checks the model.
void resolve_model(Settings& settings, const RunConfig& run, const Rank& rank,
                   StartupWarnings& warnings, std::ostream& out) {
  const bool trains_by_samples =
      settings.training->train_samples > 0 && !settings.training->skip_train;
  resolve(settings, rank.dp.size);
  validate_model(settings).throw_if_any();
  warn_of_notes(settings, run, warnings, out);
  if (trains_by_samples)
    out << "setting training iterations to " << settings.training->train_iters << std::endl;
}

}  // namespace

ResolvedRun resolve_run(const RunConfig& given, const RankContext& world, StartupWarnings& warnings,
                        std::ostream& out) {
  RunConfig run = given;
  Settings settings = run_settings(run);
  const ModelFamily& family = find_model_family(run.options.model, *world.families);
  const Mesh mesh = make_mesh(settings, world.communicators);
  Rank rank = place_rank(settings, mesh, world);
  leave_in_host_memory(*settings.memory, rank.device, out);
  if (!settings.training->skip_train) check_offload_place(*settings.memory, rank.device);
  if (mesh.world_size() > 1) out << mesh.table() << std::flush;
  const bool upcycles = settings.model->moe.use_upcycling;
  std::optional<CheckpointSource> source = choose_source(*settings.checkpoint, rank, warnings, out,
                                                         upcycles ? "--moe-use-upcycling" : "");
  const std::optional<UpcycleRequest> upcycling =
      upcycle_request(settings, rank, *world.families, warnings, out);
  std::optional<CheckpointSource> dense;
  if (upcycling) {
    dense = source;
    source->model = upcycled_architecture(*dense, *upcycling);
  }
  if (source && source->family != family.name) source = in_run_family(*source, settings, family);
  resolve_task(run, settings, source, rank, out);
  translate_rope(run, source ? &source->model : nullptr, warnings, out);
  settings.model = run.options.settings.model;
  if (source) merge_model(settings, *source, run.parsed, warnings, out);
  check_family(run.options.model, settings).throw_if_any();
  RunTokenizer tokenizer = read_tokenizer(settings, rank);
  settings.tokenizer = with_resolved_type(*settings.tokenizer);  // checkpoints keep it
  resolve_vocab_size(settings, *tokenizer.tokenizer);
  warn_of_padded_vocab_size(settings, warnings, out);
  check_router_gradient(settings, !source && !settings.checkpoint->load.empty(), warnings, out);
  resolve_epochs(settings, tokenizer.tokenizer, rank, out);
  resolve_model(settings, run, rank, warnings, out);
  if (!settings.training->skip_train)  // a mistake in it shall end the run here
    train_blend_schedule(*settings.training, *settings.data);
  const auto whole = family.make(*settings.model, Rank{}, {});
  out << freeze_whole_model(*whole, *settings.optimizer);
  PipelinePlan pipeline = plan_pipeline(settings, family, rank, out);
  apply_memory_budget(settings, family, rank,
                      {.ranks_on_host = world.ranks_on_host,
                       .layout = pipeline.layout(),
                       .source = source,
                       .warnings = warnings},
                      out);
  if (rank.pp.size > 1) enable_overlap({&rank.tp, &rank.tp_cp, &rank.etp_ep}, rank.device);
  if (upcycling) {  // after all checks, because it writes
    out << "making " << upcycling->experts.num_experts
        << " experts a layer from the dense model in " << dense->folder.string() << " ..."
        << std::endl;
    source = upcycle(*dense, *upcycling, settings.checkpoint->save);
    out << "Upcycled checkpoint saved to " << settings.checkpoint->save << std::endl;
  }
  const NumMicrobatchesCalculator batches(*settings.training, rank.dp.size);
  const ModelDimensions dimensions =
      family.dimensions(*settings.model, padded_vocab_size(settings));
  const SampleFlops flops_per_sample =
      sample_flops(dimensions, settings.data->num_choices, settings.training->seq_length);
  const OpenedDevice& device = *world.device;
  const c10::ScalarType dtype = world.params_dtype.value_or(params_dtype(*settings.training));
  return {.plan = {.settings = std::move(settings),
                   .family = &family,
                   .units = model_units(*whole),
                   .rank = std::move(rank),
                   .device_name = device.device.is_cpu() ? "" : device.reason,
                   .source = std::move(source),
                   .tokenizer_files = std::move(tokenizer.files),
                   .pipeline = std::move(pipeline),
                   .batches = batches,
                   .dimensions = dimensions,
                   .flops_per_sample = flops_per_sample,
                   .params_dtype = dtype},
          .tokenizer = std::move(tokenizer.tokenizer)};
}

}  // namespace megatron
