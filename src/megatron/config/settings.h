// All settings of a run as plain structs, with Megatron-LM's names and defaults. The *_table.cpp
// files declare the flag, the help and the range of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/cp_comm_type.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/transformer_config.h"

namespace megatron {

struct ParallelConfig {
  std::int64_t tensor_model_parallel_size = 1;
  std::int64_t pipeline_model_parallel_size = 1;
  std::int64_t context_parallel_size = 1;
  std::int64_t expert_model_parallel_size = 1;
  std::optional<std::int64_t> expert_tensor_parallel_size;
  std::string pipeline_schedule;  ///< empty: 1f1b, or interleaved with several chunks
  std::optional<std::int64_t> num_layers_per_virtual_pipeline_stage,
      num_virtual_stages_per_pipeline_rank;  ///< either sets the number of chunks per rank
  /// Used by the interleaved schedule; none: the number of pipeline ranks.
  std::optional<std::int64_t> microbatch_group_size_per_virtual_pipeline_stage;
  std::optional<std::int64_t> decoder_first_pipeline_num_layers,
      decoder_last_pipeline_num_layers;  ///< on the first and the last rank
  bool account_for_embedding_in_pipeline_split = false,
       account_for_loss_in_pipeline_split = false;  ///< count each as a layer
  std::string pipeline_model_parallel_layout;       ///< "Et*3|(tt|)*5mL"
  std::string pipeline_split = "even";              ///< even | measured
  /// Largest number of microbatches whose activations a rank may keep, over all its chunks.
  std::optional<double> pipeline_activation_limit;
  bool overlap_p2p_communication = true;
  /// How the ranks of context parallelism exchange keys and values: one for all layers, or one for
  /// each.
  std::vector<CpCommType> cp_comm_type = {CpCommType::p2p};
  /// Ranks of cp that a2a+p2p groups by heads, and number of such groups.
  std::vector<std::int64_t> hierarchical_context_parallel_sizes;
  bool hybrid_context_parallel = false;  ///< choose the ranks of each document by its length
  /// Most rows of a microbatch on a rank, for hybrid_context_parallel; 0: not given.
  std::int64_t max_seqlen_per_dp_cp_rank = 0;
  bool use_tp_pp_dp_mapping = false;  ///< rank order tp-cp-ep-pp-dp instead of tp-cp-ep-dp-pp
  bool sequence_parallel = false;
  bool tp_comm_overlap = false;  ///< overlap GEMMs with their collectives, piece by piece
  /// Reduce the input gradient before the weight gradient is computed.
  bool no_async_tensor_model_parallel_allreduce = false;
  /// ZeRO-1: shard the optimizer state over the data-parallel ranks.
  bool use_distributed_optimizer = false;
  /// Number of copies of the optimizer state. Each copy is sharded over a group of ranks.
  std::int64_t num_distributed_optimizer_instances = 1;
  /// no_shard | optim | optim_grads | optim_grads_params; empty: as the flags above say.
  std::string data_parallel_sharding_strategy;
  std::string outer_dp_sharding_strategy = "no_shard";  ///< no_shard | optim
  std::optional<std::int64_t> zero_stage;  ///< DeepSpeed's name of the strategy: 0 to 3
  bool use_megatron_fsdp = false, use_torch_fsdp2 = false;
  bool torch_fsdp2_reshard_after_forward = true;
  std::optional<std::int64_t> suggested_communication_unit_size;  ///< elements
  bool overlap_grad_reduce = false, overlap_param_gather = false;
  /// Number of elements of a gradient bucket, or number of buckets.
  std::optional<std::int64_t> ddp_bucket_size, ddp_num_buckets;
  bool ddp_pad_buckets_for_high_nccl_busbw = false;
  bool ddp_average_in_collective = false;
  bool ddp_reduce_scatter_with_fp32_accumulation = false;
  std::string ddp_grad_compression = "none";                       ///< none | bf16 | low-rank
  std::int64_t ddp_grad_compression_rank = 4;                      ///< used by low-rank
  std::int64_t check_weight_hash_across_dp_replicas_interval = 0;  ///< iterations; 0: never
  std::int64_t check_microbatch_across_dp_replicas_interval = 0;   ///< iterations; 0: never
  std::string check_microbatch_across_dp_replicas_action = "stop";
  std::string distributed_backend = "nccl";
  std::string cpu_transport = "auto";  ///< auto | shared-memory | gloo
  double distributed_timeout_minutes = 10;
  double hang_warning_seconds = 10;  ///< 0: no warnings
  std::string hang_report_dir;       ///< "": see hang_report_folder()
  bool inprocess_restart = false;    ///< the processes of ranks that have not failed are kept
  std::optional<std::int64_t> inprocess_max_iterations;  ///< starts of one process; unset: any
  bool log_comm = false;
  std::string device = "auto";  ///< auto | cpu | cuda
};

struct TrainingConfig {
  std::int64_t micro_batch_size = 0;
  std::int64_t global_batch_size = 0;  ///< 0: micro_batch_size × data-parallel size
  std::int64_t seq_length = 0;
  std::int64_t train_iters = 0;
  std::int64_t train_samples = 0;
  /// Passes over the training data, from which the run's length is computed once they are counted.
  std::optional<double> train_epochs;
  std::int64_t eval_iters = 100;
  std::optional<std::int64_t> eval_interval;
  std::int64_t seed = 1234;
  bool calculate_per_token_loss = false;
  bool check_for_nan_in_loss_and_grad = true;
  std::vector<std::int64_t> iterations_to_skip;
  std::optional<std::int64_t> exit_interval;
  /// Iterations after which the next phase of the data begins (config/data_phase.h).
  std::vector<std::int64_t> phase_transition_iterations;
  std::optional<double> exit_duration_in_mins;
  std::string exit_signal = "SIGTERM";

  std::vector<std::int64_t> rampup_batch_size;  ///< start, increment, samples
  std::string step_batch_size_schedule;         ///< "0:768 250B:1536": threshold in tokens:size
  bool decrease_batch_size_if_needed = false;

  bool skip_train = false;
  bool full_validation = false, multiple_validation_sets = false;
  std::vector<std::string> validation_set_names;
  std::optional<std::int64_t> eval_global_batch_size, eval_micro_batch_size, start_eval_at_iter;

  bool bf16 = false;
  bool fp16 = false;
  /// resolve() sets it with bf16, unless grad_reduce_in_bf16 is set.
  bool accumulate_allreduce_grads_in_fp32 = false;
  bool grad_reduce_in_bf16 = false;
  LossScaleConfig loss_scale;
  bool deterministic_mode = false;
};

/// The validation of suspicious results (Megatron's rerun state machine).
struct RerunConfig {
  std::string rerun_mode = "validate_results";  ///< disabled | validate_results | report_stats
  bool check_for_spiky_loss = false, check_for_large_grads = false;
  std::int64_t error_injection_rate = 0;
  /// correct_result | transient_error | persistent_error
  std::string error_injection_type = "transient_error";
  std::string result_rejected_tracker_filename;
};

/// Fill-in-the-middle samples: parts of documents are reordered as prefix, suffix, middle (PSM) or
/// suffix, prefix, middle (SPM).
struct FimConfig {
  bool fim_data = false;
  double fim_rate = 0.5;         ///< share of the pieces that are reordered
  double fim_spm_rate = 0.5;     ///< share of the reordered pieces that are SPM
  std::string fim_split_sample;  ///< token that divides a document into fragments; "": none
  std::optional<double> fim_fragment_rate;  ///< share of the fragments that are reordered
  std::string fim_no_prefix;                ///< pieces that start with this stay; "": none
  std::string fim_prefix_token = "<fim_prefix>", fim_middle_token = "<fim_middle>",
              fim_suffix_token = "<fim_suffix>", fim_pad_token = "<fim_pad>",
              fim_eod_token = "<|endoftext|>";
};

struct DataConfig {
  std::vector<std::string> data_path, train_data_path, valid_data_path, test_data_path;
  std::string data_args_path, per_split_data_args_path;
  std::vector<std::string> blend_schedule;  ///< words of config/blend_schedule.h, or their file
  std::string split;                        ///< default "969, 30, 1" with data_path
  std::string data_cache_path;
  bool mock_data = false;
  bool mmap_bin_files = true;
  std::int64_t num_workers = 2;
  std::string object_storage_cache_path;  ///< copies of data from http(s):// and s3:// paths
  std::int64_t object_storage_cache_mib = 65536;  ///< bound of the copies of .bin files
  std::int64_t object_storage_chunk_mib = 256;    ///< part of a .bin file that is copied at once
  std::string dataloader_type = "single";         ///< single | cyclic | external
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false;
  bool dataloader_inter_document_masking = false;     ///< pack the documents of samples
  std::string document_packing_strategy = "wrapped";  ///< wrapped | bfd | bfd_split
  bool allow_ambiguous_pad_tokens = false;
  double mid_level_dataset_surplus = 0.005;
  FimConfig fim;
  bool sft = false;  ///< the data are conversations in JSON lines; only answers are trained on
  std::string sft_tokenizer_prompt_format = "nemotron-h-aligned";
  std::string sft_packing_strategy = "line";  ///< line | bfd | bfd_split
};

struct TokenizerConfig {
  /// A type that tokenizer_table() lists; "": recognized from the files.
  std::string tokenizer_type;
  std::string tokenizer_model, vocab_file, merge_file;
  /// Name of a pattern or a regular expression; "": that of the file.
  std::string tiktoken_pattern;
  std::int64_t tiktoken_num_special_tokens = 1000;
  /// The first special tokens of TikTokenizer; empty: Megatron's seven.
  std::vector<std::string> tokenizer_special_tokens;
  /// Names the text that MultimodalTokenizer writes around the messages of a conversation; "":
  /// conversations are refused.
  std::string tokenizer_prompt_format;
  std::string image_tag_type;         ///< tags around images: nvlm | internvl; "": none
  bool force_system_message = false;  ///< qwen2p0 and qwen2p5 begin with their own system message
  /// A file, or the name of one of the model's templates; "": that of the model.
  std::string chat_template;
  std::string tokenizer_metadata;  ///< a tokenizer_metadata.json of Megatron Core
  bool tokenizer_hf_no_include_special_tokens = false;  ///< encode() adds no bos, eos, [CLS], [SEP]
  std::optional<std::int64_t> null_tokenizer_eod_id;    ///< none: --vocab-size − 1
  std::int64_t null_tokenizer_pad_id = -1;              ///< −1: there is none
  std::optional<std::int64_t> vocab_size;
  /// Number of rows of the embedding; none: the size of the vocabulary.
  std::optional<std::int64_t> padded_vocab_size;
  std::int64_t make_vocab_size_divisible_by = 128;

  /// Returns whether a flag gives the type, or a file that tells it.
  bool has_type_or_model() const {
    return !tokenizer_type.empty() || !tokenizer_model.empty() || !tokenizer_metadata.empty();
  }
  bool operator==(const TokenizerConfig&) const = default;
};

struct CheckpointConfig {
  std::string save, load;
  std::optional<std::int64_t> save_interval;
  /// Older checkpoints are kept only at multiples of this iteration.
  std::optional<std::int64_t> save_retain_interval;
  std::optional<std::int64_t> non_persistent_save_interval;
  std::string non_persistent_ckpt_type, non_persistent_global_ckpt_dir,
      non_persistent_local_ckpt_dir;
  bool replication = false;
  /// Distance of the ranks that keep copies of each other's shards; none: the ranks of a host.
  std::optional<std::int64_t> replication_jump;
  std::int64_t replication_factor = 2;
  std::optional<std::int64_t> ckpt_step;
  bool finetune = false;
  bool use_checkpoint_args = false;
  bool exit_on_missing_checkpoint = false;
  bool save_optim = true, save_rng = true, load_optim = true, load_rng = true;
  std::string ckpt_format = "torch_dist";
};

/// Timeouts of the sections of a run (training/resilience/section_watch.h).
struct FaultToleranceConfig {
  bool enable_ft_package = false, calc_ft_timeouts = false;
  std::int64_t ft_num_warmup_iters = 5;
  std::string ft_rank_section_timeouts;                  ///< see config/section_timeouts.h
  std::optional<double> ft_rank_out_of_section_timeout;  ///< seconds; nullopt: no limit
  double ft_safety_factor = 5;
};

struct LoggerConfig {
  std::int64_t log_interval = 100;
  bool log_throughput = false;
  bool log_params_norm = false;
  bool log_num_zeros_in_grad = false;
  std::int64_t timing_log_level = 0;
  std::string timing_log_option = "minmax";
  std::string tensorboard_dir;
  std::int64_t tensorboard_log_interval = 1, tensorboard_queue_size = 1000;
  bool log_timers_to_tensorboard = false, log_loss_scale_to_tensorboard = true,
       log_validation_ppl_to_tensorboard = false;
  bool log_memory_to_tensorboard = false, log_world_size_to_tensorboard = false;
  bool log_progress = false;
  bool log_memory = false;  ///< print the memory use of each part
  std::optional<std::int64_t> log_memory_interval;
  bool log_device_memory_used = false;
  /// Iterations between tables of each layer's norms.
  std::optional<std::int64_t> log_layer_norms_interval;
  bool log_straggler = false;               ///< compare the ranks' own times and name the slow ones
  std::int64_t straggler_minmax_count = 1;  ///< ranks shown at each end of the report
  std::int64_t straggler_ctrlr_port = 65535;  ///< rank 0's port that toggles the report
  bool disable_straggler_on_startup = false;
  /// Rewritten after every step, for the node exporter's textfile collector.
  std::string prometheus_file;
  std::optional<std::int64_t> prometheus_port;  ///< port that serves /metrics
  std::string prometheus_host = "127.0.0.1";    ///< address at which it is served
  bool profile = false;
  std::int64_t profile_step_start = 10, profile_step_end = 12;
  std::vector<std::int64_t> profile_ranks;
  std::string profile_dir;
  std::string trace;  ///< folder for the timeline of the pipeline
};

/// Older flags as they were given. translate_legacy_flags() sets the settings that they stand for.
struct LegacyFlags {
  bool swiglu = false, geglu = false, quick_geglu = false, squared_relu = false,
       openai_gelu = false;
  bool use_rotary_position_embeddings = false, no_position_embedding = false;
  bool use_rope_scaling = false;
  std::optional<double> rotary_seq_len_interpolation_factor, rotary_scaling_factor;
  std::string no_weight_decay_cond_type;
};

/// All settings of a `pretrain` run.
struct Settings {
  LegacyFlags legacy;
  TransformerConfig model;
  ParallelConfig parallel;
  TrainingConfig training;
  RerunConfig rerun;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  DataConfig data;
  TokenizerConfig tokenizer;
  MemoryConfig memory;
  CheckpointConfig checkpoint;
  FaultToleranceConfig fault_tolerance;
  LoggerConfig logger;
};

}  // namespace megatron
