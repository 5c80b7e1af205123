#include "megatron/training/loop/setup.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <ostream>

#include "megatron/checkpoint/collective_steps.h"
#include "megatron/checkpoint/merge_architecture.h"
#include "megatron/config/checkpoint_folders.h"
#include "megatron/config/launch_environment.h"
#include "megatron/config/print_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/validate_settings.h"
#include "megatron/config/world_rules.h"
#include "megatron/models/gpt_model.h"
#include "megatron/models/params_dtype.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/pipeline/overlapped_comm.h"
#include "megatron/planner/plan_pipeline.h"
#include "megatron/planner/run_costs.h"
#include "megatron/tokenizers/tokenizer_files.h"
#include "megatron/training/feeding/data_setup.h"
#include "megatron/training/loop/determinism.h"
#include "megatron/training/loop/open_device.h"
#include "megatron/training/loop/out_of_memory.h"
#include "megatron/training/observability/startup_report.h"
#include "megatron/training/resilience/reruns/tracker_file.h"
#include "megatron/training/saving/check_save_folders.h"
#include "megatron/training/saving/checkpointing.h"
#include "megatron/training/saving/choose_checkpoint.h"

namespace megatron {
namespace {

/// Returns the tokenizer settings. Without a type, it is a tokenizer of plain ids with --vocab-size
/// or the loaded model's vocabulary.
std::unique_ptr<Tokenizer> open_run_tokenizer(const TokenizerConfig& config,
                                              std::int64_t model_vocab_size) {
  TokenizerConfig chosen = config;
  if (config.tokenizer_type.empty() && config.tokenizer_model.empty() &&
      config.vocab_file.empty()) {
    chosen.tokenizer_type = "NullTokenizer";
    chosen.vocab_size = config.vocab_size.value_or(model_vocab_size);
  }
  return make_tokenizer(chosen);
}

/// Sets the model's vocabulary size: the checkpoint's, else --vocab-size, else the tokenizer's.
/// UserError when the tokenizer's is larger than the first two.
void resolve_vocab_size(Settings& settings, const Tokenizer& tokenizer) {
  std::int64_t& size = settings.model.vocab_size;
  const bool is_loaded = size > 0;
  const TokenizerConfig& given = settings.tokenizer;
  if (!is_loaded)
    size = given.padded_vocab_size.value_or(given.vocab_size.value_or(tokenizer.vocab_size()));
  if (given.padded_vocab_size && *given.padded_vocab_size < size) {
    throw UserError({"--padded-vocab-size " + std::to_string(*given.padded_vocab_size),
                     "is less than the loaded model's vocabulary of " + std::to_string(size),
                     "leave --padded-vocab-size out"});
  }
  if (tokenizer.vocab_size() <= size) return;
  if (given.padded_vocab_size == size) {
    throw UserError(
        {"--padded-vocab-size " + std::to_string(size),
         "is less than the tokenizer's " + std::to_string(tokenizer.vocab_size()) + " ids",
         "raise it to at least " + std::to_string(tokenizer.vocab_size())});
  }
  throw UserError({"the tokenizer has " + std::to_string(tokenizer.vocab_size()) + " ids",
                   "the model's vocabulary has " + std::to_string(size),
                   is_loaded ? "use the tokenizer of the loaded model"
                             : "leave --vocab-size out, or make it as large as the tokenizer's"});
}

/// Returns the dtypes of weights and main gradients and the axes that share them.
ParamStore::Options store_options(const Settings& settings, const Rank& rank,
                                  Communicators* communicators) {
  const TrainingConfig& training = settings.training;
  const bool has_bf16_gradients =
      training.grad_reduce_in_bf16 || settings.optimizer.main_grads_dtype == "bf16";
  return {.device = rank.device,
          .dtype = params_dtype(training),
          .grad_dtype = has_bf16_gradients ? at::kBFloat16 : at::kFloat,
          .with_gradients = !training.skip_train,
          .data_parallel = data_parallel(settings.parallel, rank, communicators),
          .model = rank.model,
          .embedding = rank.embedding};
}

constexpr std::int64_t kOverlapChunks = 4;  ///< GEMM chunks with --tp-comm-overlap

class Setup {
 public:
  Setup(const RunConfig& run, const OpenedDevice& device, const RankContext& world,
        std::ostream& out)
      : run_(run), device_(device), world_(world), out_(out) {}

  Trainer build() {
    resolve_settings();
    out_ << world_line(trainer_.rank) << '\n'
         << device_line(device_) << '\n'
         << argument_dump(settings());
    out_ << padded_vocab_line(settings().model.vocab_size, padded_vocab_size(settings()))
         << std::endl;
    try {
      build_trainer();
    } catch (...) {
      rethrow_with_memory_report(trainer_);
    }
    out_ << trainer_.timers.report(std::array<std::string_view, 2>{
                "model-and-optimizer-setup", "train/valid/test-data-iterators-setup"})
         << std::endl;
    return std::move(trainer_);
  }

 private:
  Settings& settings() { return trainer_.settings; }

  /// Warns that a loaded model keeps its own vocabulary size when --padded-vocab-size differs.
  void warn_of_padded_vocab_size() {
    const auto padded = settings().tokenizer.padded_vocab_size;
    const std::int64_t size = settings().model.vocab_size;
    if (!padded || *padded == size) return;
    trainer_.warnings.add("--padded-vocab-size " + std::to_string(*padded) +
                              " has no effect: the loaded model's vocabulary size is " +
                              std::to_string(size),
                          out_);
  }

  void build_trainer() {
    {
      const auto timing = trainer_.timers.scope("model-and-optimizer-setup");
      build_model();
      build_optimizer();
    }
    report_theoretical_memory();
    const auto timing = trainer_.timers.scope("train/valid/test-data-iterators-setup");
    build_train_valid_test_data(trainer_, *tokenizer_, out_);
  }

  /// Copies the settings. With --skip-train, clears the save folders, which belong to the run that
  /// trained.
  void copy_settings() {
    settings() = run_.options.settings;
    trainer_.world = world_;
    if (!settings().training.skip_train) return;
    settings().checkpoint.save.clear();
    settings().logger.tensorboard_dir.clear();
  }

  /// Builds the mesh and this rank's axes.
  void initialize_model_parallel() {
    const ParallelConfig& parallel = settings().parallel;
    const std::int64_t world_size =
        world_.communicators != nullptr ? world_.communicators->world_size() : 1;
    check_world(settings(), world_size).throw_if_any();
    const RankOptions options{.device = device_.device,
                              .seed = static_cast<std::uint64_t>(settings().training.seed),
                              .sequence_parallel = parallel.sequence_parallel};
    const Mesh& mesh = mesh_.emplace(mesh_sizes(parallel), world_size);
    trainer_.rank = world_.communicators != nullptr
                        ? make_rank(mesh, *world_.communicators, options)
                        : make_rank(mesh, 0, options);
    trainer_.rank.tp_options = {
        .async_allreduce = !parallel.no_async_tensor_model_parallel_allreduce,
        .overlap_chunks =
            parallel.tp_comm_overlap && trainer_.rank.tp.size > 1 ? kOverlapChunks : 1};
    if (world_size > 1) out_ << mesh.table() << std::flush;
  }

  void resolve_settings() {
    copy_settings();
    initialize_model_parallel();
    trainer_.source =
        choose_checkpoint(settings().checkpoint, trainer_.rank, trainer_.warnings, out_);
    if (trainer_.source)
      settings().model = merge_architecture(*trainer_.source, settings().model, run_.parsed);
    read_tokenizer();
    resolve_vocab_size(settings(), *tokenizer_);
    warn_of_padded_vocab_size();
    resolve(settings(), trainer_.rank.dp.size);
    validate_model(settings()).throw_if_any();
    if (run_.options.settings.training.train_samples > 0 && !settings().training.skip_train)
      out_ << "setting training iterations to " << settings().training.train_iters << std::endl;
    trainer_.pipeline = plan_pipeline(settings(), trainer_.rank, out_);
    if (trainer_.rank.pp.size > 1) enable_overlap(trainer_.rank.tp, trainer_.rank.device);
    trainer_.rank.embedding = embedding_axis(settings(), trainer_.pipeline.layout(), *mesh_,
                                             trainer_.rank, world_.communicators);
    open_save_folders();
    skip_rejected_iterations(settings(), out_);
    trainer_.timers = Timers(static_cast<int>(settings().logger.timing_log_level),
                             timer_statistic(settings().logger.timing_log_option));
    trainer_.timers.set_gather([axis = trainer_.rank.world,
                                device = trainer_.rank.device](const std::vector<double>& mine) {
      return all_gather_numbers({axis, device}, mine, "timers");
    });
    if (!device_.device.is_cpu()) trainer_.device_name = device_.reason;
  }

  /// Opens the tokenizer on every rank; rank 0 also reads its files, which checkpoints include. If
  /// one rank fails, all ranks stop here.
  void read_tokenizer() {
    const TokenizerConfig& config = settings().tokenizer;
    CollectiveSteps(trainer_.rank.world, trainer_.rank.device).run_on_all_ranks([&] {
      tokenizer_ = open_run_tokenizer(config, settings().model.vocab_size);
      if (trainer_.rank.world.rank == 0) trainer_.tokenizer_files = tokenizer_files(config);
      return std::string();
    });
  }

  /// Rank 0 checks, creates and locks the folders. The other ranks wait for it and do not read the
  /// folders.
  void open_save_folders() {
    const CheckpointConfig& config = settings().checkpoint;
    if (config.save.empty()) return;
    const auto open = [&](bool is_leader) {
      trainer_.save_folder =
          std::make_unique<SaveFolder>(config.save, default_file_system(), is_leader);
      if (config.non_persistent_save_interval)
        trainer_.non_persistent_folder = std::make_unique<SaveFolder>(
            non_persistent_folder(config, config.save), default_file_system(), is_leader);
    };
    CollectiveSteps(trainer_.rank.world, trainer_.rank.device).run_on_rank_0([&] {
      const LaunchEnvironment launch = find_launch_environment();
      check_save_folders(config, trainer_.source,
                         {.count = launch.restart_count, .max = launch.max_restarts},
                         trainer_.warnings, out_);
      open(/*is_leader=*/true);
      return std::string();
    });
    if (trainer_.rank.index != 0) open(/*is_leader=*/false);
  }

  void build_model() {
    out_ << "building GPT model ..." << std::endl;
    const PipelineLayout& layout = trainer_.pipeline.layout();
    trainer_.model = make_gpt_model(
        settings().model, trainer_.rank,
        GptOptions{.vocab_pad_multiple = settings().tokenizer.make_vocab_size_divisible_by,
                   .dtype = params_dtype(settings().training),
                   .layout = &layout});
    trainer_.weights = std::make_unique<ParamStore>(
        declared_parameters(*trainer_.model),
        store_options(settings(), trainer_.rank, world_.communicators));
    out_ << parameter_count_line(trainer_.weights->num_parameters()) << std::endl;
  }

  void build_optimizer() {
    if (!settings().training.skip_train) {
      trainer_.optimizer = make_optimizer(settings().optimizer, *trainer_.weights,
                                          loss_scaling(settings().training));
      trainer_.scheduler = OptimizerParamScheduler(make_param_schedule(settings()));
    }
    if (trainer_.source) {
      load_trainer(trainer_, out_);
    } else if (trainer_.optimizer) {
      trainer_.optimizer->main_parameters().initialize(trainer_.rank.seed);
    } else {
      trainer_.weights->initialize(trainer_.rank.seed);
    }
    init_num_microbatches();
  }

  void init_num_microbatches() {
    const std::int64_t consumed = trainer_.progress.consumed_train_samples;
    trainer_.batches = NumMicrobatchesCalculator(settings().training, trainer_.rank.dp.size);
    trainer_.batch = trainer_.batches.at(consumed);
    if (settings().training.skip_train) return;
    if (const auto size = trainer_.batches.indivisible_size(consumed))
      throw UserError({"a batch of " + std::to_string(*size) + " samples, due from here on (" +
                           std::to_string(consumed) + " samples are consumed)",
                       "is no multiple of --micro-batch-size " +
                           std::to_string(settings().training.micro_batch_size) + ranks_text(),
                       "choose sizes that are, or add --decrease-batch-size-if-needed"});
    if (trainer_.rank.pp.size > 1)
      out_ << trainer_.pipeline.table(trainer_.batch.num_microbatches)
           << std::flush;  // UserError when there is no valid schedule
  }

  std::string ranks_text() const {
    const std::int64_t ranks = trainer_.rank.dp.size;
    return ranks == 1 ? "" : " times " + std::to_string(ranks) + " data-parallel ranks";
  }

  void report_theoretical_memory() {
    const ModelDimensions dimensions = run_dimensions(settings());
    const TrainingConfig& training = settings().training;
    trainer_.flops_per_sample = num_floating_point_operations(dimensions, 1, training.seq_length);
    out_ << theoretical_memory_report(
                dimensions,
                run_memory_layout(settings(), trainer_.rank, trainer_.batch.num_microbatches),
                /*verbose=*/true)
         << std::flush;
  }

  const RunConfig& run_;
  const OpenedDevice device_;
  const RankContext& world_;
  std::ostream& out_;
  Trainer trainer_;
  std::optional<Mesh> mesh_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace

Trainer set_up(const RunConfig& run, std::ostream& out, const RankContext& world) {
  set_determinism(run.options.settings.training);
  const OpenedDevice device =
      world.device ? *world.device : open_device(run.options.settings.parallel.device);
  at::set_num_threads(bind_to_cpus(world.cpus, /*pins=*/device.device.is_cpu()));
  return Setup(run, device, world, out).build();
}

}  // namespace megatron
