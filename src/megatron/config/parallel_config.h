// The settings of parallelism: the degree of each axis, the pipeline, the communication of
// gradients and weights, and the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/cp_comm_type.h"

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

}  // namespace megatron
