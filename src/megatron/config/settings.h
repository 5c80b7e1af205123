// Every setting of a run as plain structs: Megatron-LM's names and defaults. The tables in settings_tables.cpp declare flag, help and range of each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megatron {

/// Bounds within which products of sizes stay inside 64 bits.
inline constexpr std::int64_t kLargestSize = 1'000'000'000, kMostLayers = 100'000, kMostSamples = kLargestSize * kLargestSize;

enum class Normalization { LayerNorm, RMSNorm };
enum class PositionEmbedding { learned_absolute, rope, yarn, alibi, none };
enum class Activation { gelu, gelu_tanh, relu, squared_relu, silu, quick_gelu };
enum class NormPlacement { pre, post };
enum class RopeScaling { none, linear, llama3, yarn };

/// The architecture and numerics of one transformer. Filled from flags, a checkpoint or config.json; `resolve` fills derived fields.
struct TransformerConfig {
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t ffn_hidden_size = 0;  ///< 0: 4·hidden, or ⌊8·hidden/3/64⌋·64 with a gated activation
  std::int64_t kv_channels = 0;      ///< head dimension; 0: hidden/heads
  bool group_query_attention = false;
  std::int64_t num_query_groups = 1;  ///< used only with group_query_attention; resolved() sets it to the heads otherwise
  std::int64_t max_position_embeddings = 0;
  std::int64_t vocab_size = 0;  ///< the model's true vocabulary, unpadded

  Normalization normalization = Normalization::LayerNorm;
  NormPlacement norm_placement = NormPlacement::pre;
  double norm_epsilon = 1e-5;
  bool apply_layernorm_1p = false;
  bool apply_residual_connection_post_layernorm = false;
  bool qk_layernorm = false;

  PositionEmbedding position_embedding_type = PositionEmbedding::learned_absolute;
  double rotary_base = 10000;
  double rotary_percent = 1.0;
  bool rotary_interleaved = false;
  RopeScaling rope_scaling_type = RopeScaling::none;
  double rope_scaling_factor = 8.0;                           ///< linear: the interpolation factor; llama3 and yarn: theirs
  double rope_low_freq_factor = 1.0;                          ///< llama3
  double rope_high_freq_factor = 4.0;                         ///< llama3
  std::int64_t rope_original_max_position_embeddings = 8192;  ///< llama3 (8192) and yarn (4096)
  double yarn_beta_fast = 32;
  double yarn_beta_slow = 1;
  double yarn_mscale = 1;
  double yarn_mscale_all_dim = 0;
  bool yarn_correction_range_round_to_int = true;
  std::optional<double> yarn_attention_factor;  ///< Hugging Face's attention_factor when given

  Activation activation = Activation::gelu;
  bool gated_linear_unit = false;  ///< SwiGLU = silu + gated, GEGLU = gelu + gated
  bool add_bias_linear = true;
  bool add_qkv_bias = false;  ///< bias on QKV although add_bias_linear is off
  bool untie_embeddings_and_output_weights = false;
  std::optional<std::array<std::int64_t, 2>> window_size;  ///< sliding window (left, right); −1 = unlimited
  std::string window_attn_skip_freq;        ///< N: every N-th layer is full; or a list expression, 1 = windowed. resolve() makes window_layers of it
  std::vector<std::int64_t> window_layers;  ///< per layer 1 = windowed, 0 = full; empty = every layer

  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  double init_method_std = 0.02;
  std::optional<double> embedding_init_method_std;
  bool init_method_xavier_uniform = false;
  bool fp32_residual_connection = false;
  bool attention_softmax_in_fp32 = false;
  bool apply_query_key_layer_scaling = false;
  std::optional<double> softmax_scale;  ///< default 1/√kv_channels

  bool is_gated() const { return gated_linear_unit; }
  std::int64_t query_groups() const { return group_query_attention ? num_query_groups : num_attention_heads; }
};

struct ParallelConfig {
  std::int64_t tensor_model_parallel_size = 1;
  std::int64_t pipeline_model_parallel_size = 1;
  std::int64_t context_parallel_size = 1;
  std::int64_t expert_model_parallel_size = 1;
  std::optional<std::int64_t> expert_tensor_parallel_size;
  bool sequence_parallel = false;
  bool use_distributed_optimizer = false;
  std::string distributed_backend = "nccl";
  std::string device = "auto";  ///< auto | cpu | cuda
};

struct TrainingConfig {
  std::int64_t micro_batch_size = 0;
  std::int64_t global_batch_size = 0;  ///< 0: micro_batch_size × data-parallel size
  std::int64_t seq_length = 0;
  std::int64_t train_iters = 0;
  std::int64_t train_samples = 0;
  std::int64_t eval_iters = 100;
  std::optional<std::int64_t> eval_interval;
  std::int64_t seed = 1234;
  bool calculate_per_token_loss = false;
  bool check_for_nan_in_loss_and_grad = true;
  std::vector<std::int64_t> iterations_to_skip;
  std::optional<std::int64_t> exit_interval;
  std::optional<double> exit_duration_in_mins;
  bool bf16 = false;
  bool fp16 = false;
};

struct OptimizerConfig {
  std::string optimizer = "adam";  ///< adam | sgd
  double weight_decay = 0.01;
  bool apply_wd_to_qk_layernorm = false;
  double clip_grad = 1.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double sgd_momentum = 0.9;
};

enum class LrDecayStyle { constant, linear, cosine, inverse_square_root, WSD };
enum class WsdDecayStyle { exponential, linear, cosine, minus_sqrt };
enum class WeightDecayIncrStyle { constant, linear, cosine };

struct SchedulerConfig {
  std::optional<double> lr;
  double min_lr = 0;
  LrDecayStyle lr_decay_style = LrDecayStyle::linear;
  WsdDecayStyle lr_wsd_decay_style = WsdDecayStyle::exponential;
  std::optional<std::int64_t> lr_decay_iters, lr_decay_samples;
  std::optional<std::int64_t> lr_wsd_decay_iters, lr_wsd_decay_samples;
  std::optional<double> lr_warmup_fraction;
  std::int64_t lr_warmup_iters = 0, lr_warmup_samples = 0;
  double lr_warmup_init = 0;
  std::optional<double> start_weight_decay, end_weight_decay;
  WeightDecayIncrStyle weight_decay_incr_style = WeightDecayIncrStyle::constant;
  bool override_opt_param_scheduler = false;
  bool use_checkpoint_opt_param_scheduler = false;
};

struct DataConfig {
  std::vector<std::string> data_path, train_data_path, valid_data_path, test_data_path;
  std::string data_args_path, per_split_data_args_path;
  std::string split;  ///< default "969, 30, 1" with data_path
  std::string data_cache_path;
  bool mock_data = false;
  bool mmap_bin_files = true;
  std::int64_t num_workers = 2;
  std::string dataloader_type = "single";  ///< single | cyclic
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false;
  bool allow_ambiguous_pad_tokens = false;
  double mid_level_dataset_surplus = 0.005;
};

struct TokenizerConfig {
  std::string tokenizer_type;  ///< NullTokenizer, ByteTokenizer, GPT2BPETokenizer, HuggingFaceTokenizer
  std::string tokenizer_model, vocab_file, merge_file;
  std::optional<std::int64_t> vocab_size;
  std::int64_t make_vocab_size_divisible_by = 128;
};

struct CheckpointConfig {
  std::string save, load;
  std::optional<std::int64_t> save_interval;
  std::optional<std::int64_t> ckpt_step;
  bool finetune = false;
  bool use_checkpoint_args = false;
  bool exit_on_missing_checkpoint = false;
  bool save_optim = true, save_rng = true, load_optim = true, load_rng = true;
  std::string ckpt_format = "torch_dist";
};

struct LoggerConfig {
  std::int64_t log_interval = 100;
  bool log_throughput = false;
  bool log_params_norm = false;
  bool log_num_zeros_in_grad = false;
  std::int64_t timing_log_level = 0;
  std::string timing_log_option = "minmax";
  std::string tensorboard_dir;
};

/// All settings of a `pretrain` run.
struct Settings {
  TransformerConfig model;
  ParallelConfig parallel;
  TrainingConfig training;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  DataConfig data;
  TokenizerConfig tokenizer;
  CheckpointConfig checkpoint;
  LoggerConfig logger;
};

}  // namespace megatron
