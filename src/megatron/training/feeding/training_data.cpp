#include "megatron/training/feeding/training_data.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/data_config.h"
#include "megatron/config/data_phase.h"
#include "megatron/config/evaluation_plan.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/datasets/builder.h"
#include "megatron/datasets/sample_counts.h"
#include "megatron/models/model_cost.h"
#include "megatron/models/model_family.h"
#include "megatron/parallel/rank.h"
#include "megatron/schedules/hybrid_context_schedule.h"
#include "megatron/training/feeding/dataset_source.h"
#include "megatron/training/observability/log_lines.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

constexpr double kOperationsPerByte = 1000;
/// What a ring sends for a channel of a key or value: two bytes in forward, two in backward, and
/// four for its gradient.
constexpr double kBytesPerChannel = 8;

/// Returns the cost of sequences of a model, in floating-point operations of forward and backward.
/// Sending a byte counts as a thousand of them: the 400 TFLOP/s of an H100 are 900 for each byte of
/// the 450 GB/s of its NVLink, and a core of 1 TFLOP/s with 1 GB/s over loopback has a thousand.
SequenceCost sequence_cost(const ModelDimensions& dimensions) {
  const double channels = static_cast<double>(dimensions.query_groups) *
                          static_cast<double>(dimensions.kv_channels + dimensions.v_channels()) *
                          static_cast<double>(dimensions.num_layers);
  return {.per_token = num_floating_point_operations(dimensions, 1.0, 0.0),
          .per_squared_token = num_floating_point_operations(dimensions, 0.0, 1.0),
          .per_sent_token = channels * kBytesPerChannel * kOperationsPerByte};
}

SamplerKind sampler_kind(const DataConfig& config) {
  return config.dataloader_type == "cyclic" ? SamplerKind::cyclic : SamplerKind::single;
}

/// Returns what makes the datasets of the run.
DatasetBuilder dataset_builder(const DataConfig& config, const DatasetBuilder& external) {
  const bool is_external = config.dataloader_type == "external";
  if (is_external && !external)
    throw UserError(
        {"--dataloader-type external takes the samples of a program that links the "
         "library, and this program gives none",
         "", "use --dataloader-type single or cyclic"});
  if (!is_external && external)
    throw UserError({"this program gives samples of its own",
                     "--dataloader-type is " + config.dataloader_type,
                     "use --dataloader-type external"});
  return is_external ? external : build_datasets;
}

class DataSetup {
 public:
  DataSetup(const TrainingPlan& plan, std::ostream& out)
      : plan_(plan),
        settings_(plan.settings),
        rank_(plan.rank),
        dp_(plan.rank.dp),
        evaluations_(evaluation_plan(*plan.settings.training, dp_.size)),
        out_(out) {}

  TrainingData build(const SampleSource& source, const TrainingProgress& progress) {
    const DatasetBuilder make_datasets = dataset_builder(*settings_.data, source.external);
    const std::shared_ptr<const Tokenizer>& tokenizer = source.tokenizer;
    const auto samples = train_valid_test_num_samples(settings_, dp_.size, progress.iteration);
    out_ << dataset_sizes_block(samples) << std::endl;
    DatasetRequest request = run_dataset_request(settings_, samples);
    request.row_multiple = rank_.cp.size > 1 ? 2 * rank_.cp.size : 1;
    set_tokenizer(request, plan_.family->sample_kind, settings_, tokenizer);
    if (const std::string cause = cause_of_padding();
        plan_.family->sample_kind == SampleKind::bert && !cause.empty())
      out_ << "> the layers compute the padding of samples too: " << cause << std::endl;
    const Datasets datasets = make_datasets(*settings_.data, request);
    data_.mixtures = std::move(request.train_schedule);
    for (const std::string& warning : datasets.warnings)
      out_ << "WARNING: " << warning << std::endl;
    if (samples[0] != 0 && !datasets.splits[0])
      throw UserError({"the train split has no tokens",
                       settings_.data->split.empty() ? "" : "--split is " + settings_.data->split,
                       "give it a share with --split, or its own data with --train-data-path"});
    if (samples[0] != 0)
      data_.train = make_dataset_source(
          datasets.splits[0],
          source_options(settings_.training->micro_batch_size,
                         consumed_samples_in_phase(*settings_.training, progress.iteration,
                                                   progress.consumed_train_samples)));
    if (samples[1] != 0) add_validation_sets(datasets.valid_sets);
    if (samples[2] != 0 && datasets.splits[2])
      data_.test = evaluation_set(datasets.splits[2], "", evaluations_.num_microbatches());
    if (rank_.index == 0) report(datasets, samples);
    return std::move(data_);
  }

 private:
  /// Prints how many epochs of each corpus the run takes.
  void report(const Datasets& datasets, const std::array<std::optional<std::int64_t>, 3>& samples) {
    std::vector<std::string> suffixes;
    for (const EvaluationSet& set : data_.valid) suffixes.push_back(set.suffix);
    data_.shares = split_shares(datasets, samples, suffixes);
    out_ << data_table(data_.shares) << std::flush;
  }

  DatasetSourceOptions source_options(std::int64_t micro_batch_size,
                                      std::int64_t first_sample) const {
    DatasetSourceOptions options{
        .loader = {.sampler = {.kind = sampler_kind(*settings_.data),
                               .consumed_samples = first_sample,
                               .micro_batch_size = micro_batch_size,
                               .data_parallel_rank = dp_.rank,
                               .data_parallel_size = dp_.size,
                               .data_sharding = settings_.data->data_sharding},
                   .num_workers = settings_.data->num_workers,
                   .vocab_size = settings_.model->vocab_size},
        .context_rank = rank_.cp.rank,
        .context_ranks = rank_.cp.size,
        .document_masks = settings_.data->reset_attention_mask,
        .packs_documents = settings_.data->dataloader_inter_document_masking || settings_.data->sft,
        .unpadded_row_multiple = row_multiple_without_padding(),
        .device = rank_.device};
    if (settings_.parallel->hybrid_context_parallel)
      options.hybrid = {.rank = rank_.dp_cp.rank,
                        .num_ranks = rank_.dp_cp.size,
                        .max_rows_per_rank = settings_.parallel->max_seqlen_per_dp_cp_rank,
                        .row_multiple = rank_.sequence_parallel ? rank_.tp.size : 1,
                        .cost = sequence_cost(plan_.dimensions),
                        .samples_of_step = [batches = plan_.batches](std::int64_t consumed) {
                          return batches.at(consumed).running_batch_size;
                        }};
    return options;
  }

  /// Returns why the padding of samples runs through the layers, or "" if it is left out.
  std::string cause_of_padding() const {
    if (settings_.data->keep_padding) return "--keep-padding is given";
    if (rank_.cp.size > 1) return "context parallelism divides whole samples";
    if (settings_.model->moe.num_experts > 0) return "the routers of experts balance all rows";
    return ranks_choices(settings_.data->task) ? "choices have fixed places in their samples" : "";
  }

  std::int64_t row_multiple_without_padding() const {
    if (!cause_of_padding().empty()) return 0;
    return rank_.sequence_parallel ? rank_.tp.size : 1;
  }

  EvaluationSet evaluation_set(const std::shared_ptr<const Dataset>& dataset,
                               const std::string& suffix, std::int64_t num_microbatches) const {
    EvaluationSet set{.suffix = suffix,
                      .num_microbatches = num_microbatches,
                      .num_samples = num_microbatches * samples_per_microbatch_round()};
    set.open = [dataset, options = source_options(evaluations_.micro_batch_size, 0),
                num_samples = set.num_samples,
                in_pass = microbatches_per_pass(rank_.pp.size) *
                          samples_per_microbatch_round()](std::int64_t first_sample) {
      DatasetSourceOptions from = options;
      from.loader.sampler.consumed_samples = first_sample;
      if (from.hybrid)
        from.hybrid->samples_of_step = [=](std::int64_t consumed) {
          return std::clamp<std::int64_t>(first_sample + num_samples - consumed, 0, in_pass);
        };
      return make_dataset_source(dataset, from);
    };
    return set;
  }

  void add_validation_sets(const std::vector<std::shared_ptr<const Dataset>>& sets) {
    const TrainingConfig& training = *settings_.training;
    const std::vector<std::string> suffixes = validation_suffixes(training, sets.size());
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const std::string& suffix = suffixes[i];
      data_.valid.push_back(evaluation_set(
          sets[i], suffix,
          training.full_validation ? whole(*sets[i], suffix) : evaluations_.num_microbatches()));
      data_.valid.back().is_full_validation = training.full_validation;
    }
  }

  /// Returns the number of full microbatches in a set.
  std::int64_t whole(const Dataset& dataset, const std::string& suffix) const {
    const std::int64_t size = dataset.size(), microbatches = size / samples_per_microbatch_round();
    if (microbatches == 0)
      throw UserError(
          {"the validation" + suffix + " set has " + std::to_string(size) +
               " samples, fewer than one microbatch of " +
               (dp_.size > 1 ? std::to_string(evaluations_.micro_batch_size) + " for each of " +
                                   std::to_string(dp_.size) + " data-parallel ranks"
                             : std::to_string(evaluations_.micro_batch_size)),
           "", "use more data, or a smaller --eval-micro-batch-size"});
    out_ << " > each evaluation of the validation" << suffix << " set takes "
         << microbatches * samples_per_microbatch_round() << " of its " << size << " samples"
         << std::endl;
    return microbatches;
  }

  std::int64_t samples_per_microbatch_round() const {
    return evaluations_.micro_batch_size * dp_.size;
  }

  const TrainingPlan& plan_;
  const Settings& settings_;
  const Rank& rank_;
  const Axis& dp_;
  EvaluationPlan evaluations_;
  std::ostream& out_;
  TrainingData data_;
};

}  // namespace

TrainingData build_train_valid_test_data(const TrainingPlan& plan, const TrainingProgress& progress,
                                         const SampleSource& source, std::ostream& out) {
  TrainingData data = DataSetup(plan, out).build(source, progress);
  out << "> finished creating " << plan.family->title << " datasets ..." << std::endl;
  return data;
}

}  // namespace megatron
