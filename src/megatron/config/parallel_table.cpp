// Declares the flags of parallelism: the degree of each axis, the pipeline, the communication of
// gradients and weights, and the device.
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_enums.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/validate_settings.h"

namespace megatron {
namespace {

/// resolve() turns the flags off, as Megatron-LM does.
constexpr ConditionalNote kNoTensorParallelism{
    [](const Settings& s) { return s.parallel->tensor_model_parallel_size == 1; },
    "is turned off: --tensor-model-parallel-size is 1"};

void add_tensor_fields(FieldTable<ParallelConfig>& t) {
  using Config = ParallelConfig;
  t.field("sequence_parallel", &Config::sequence_parallel,
          "shard the activations of norms and dropout along the sequence over the tensor-parallel "
          "ranks")
      .note(kNoTensorParallelism);
  t.field("tp_comm_overlap", &Config::tp_comm_overlap,
          "overlap GEMMs with their tensor-parallel collectives, piece by piece; requires "
          "--sequence-parallel")
      .note("on a CPU it can be slower: compare the step time without it")
      .note(kNoTensorParallelism);
  t.field("no_async_tensor_model_parallel_allreduce",
          &Config::no_async_tensor_model_parallel_allreduce,
          "all-reduce the input gradient before the weight gradient is computed instead of "
          "overlapping the two");
}

void add_schedule_fields(FieldTable<ParallelConfig>& t) {
  using Config = ParallelConfig;
  t.group("Pipeline");
  t.field("pipeline_schedule", &Config::pipeline_schedule,
          "order of forward and backward passes; none: 1f1b, or interleaved with several chunks "
          "per rank; auto: search for the fastest schedule")
      .choices({"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v",
                "combined-1f1b", "auto"});
  t.field("pipeline_activation_limit", &Config::pipeline_activation_limit,
          "largest number of microbatches whose activations a rank may keep, in units of one "
          "microbatch's activations in all layers of an average rank")
      .above(0)
      .at_most(kMaxSize);
  t.field("microbatch_group_size_per_virtual_pipeline_stage",
          &Config::microbatch_group_size_per_virtual_pipeline_stage,
          "number of consecutive microbatches that a chunk processes before the next chunk, with "
          "the interleaved schedule; none: the number of pipeline ranks")
      .between(1, kMaxSize)
      .alias("microbatch-group-size-per-vp-stage")
      .note({[](const Settings& s) { return !has_microbatch_groups(s); },
             "without effect: the schedule has one chunk per rank, or an order of its own"});
  t.field("overlap_p2p_communication", &Config::overlap_p2p_communication,
          "do not overlap the communication between stages with computation")
      .alias("overlap-p2p-comm");
}

void add_stage_fields(FieldTable<ParallelConfig>& t) {
  using Config = ParallelConfig;
  t.field("num_virtual_stages_per_pipeline_rank", &Config::num_virtual_stages_per_pipeline_rank,
          "number of model chunks on each rank")
      .between(1, kMaxSize)
      .alias("virtual-pipeline-model-parallel-size");
  t.field("num_layers_per_virtual_pipeline_stage", &Config::num_layers_per_virtual_pipeline_stage,
          "largest number of layers of a model chunk, instead of the number of chunks")
      .between(1, kMaxSize);
  t.field("decoder_first_pipeline_num_layers", &Config::decoder_first_pipeline_num_layers,
          "number of layers on the first rank; the other ranks share the rest")
      .between(1, kMaxSize)
      .alias("num-layers-in-first-pipeline-stage");
  t.field("decoder_last_pipeline_num_layers", &Config::decoder_last_pipeline_num_layers,
          "number of layers on the last rank; the other ranks share the rest")
      .between(1, kMaxSize)
      .alias("num-layers-in-last-pipeline-stage");
  t.field("account_for_embedding_in_pipeline_split",
          &Config::account_for_embedding_in_pipeline_split,
          "count the embedding as a layer when layers are divided");
  t.field("account_for_loss_in_pipeline_split", &Config::account_for_loss_in_pipeline_split,
          "count the output layer with the loss as a layer when layers are divided");
  t.field(
      "pipeline_model_parallel_layout", &Config::pipeline_model_parallel_layout,
      "contents of each stage: E embedding, t layer, m layer of multi-token prediction, L output "
      "layer with the loss, | next stage; x*n and (...)*n repeat");
  t.field("pipeline_split", &Config::pipeline_split,
          "even: divide the layers by their number; measured: divide them by the costs of "
          "embedding, layer and output, measured before the run")
      .choices({"even", "measured"});
}

void add_gradient_fields(FieldTable<ParallelConfig>& t) {
  using Config = ParallelConfig;
  t.group("Data parallelism");
  t.field("overlap_grad_reduce", &Config::overlap_grad_reduce,
          "reduce each gradient bucket as soon as the backward pass has filled it");
  t.field("ddp_bucket_size", &Config::ddp_bucket_size,
          "number of elements of a gradient bucket; none: max(40e6, 1e6 x ranks), or one bucket "
          "without --overlap-grad-reduce")
      .between(1, kMaxSize)
      .alias("bucket-size");
  t.field("ddp_num_buckets", &Config::ddp_num_buckets,
          "number of gradient buckets, instead of their size")
      .between(1, kMaxSize)
      .alias("num-buckets");
  t.field("ddp_pad_buckets_for_high_nccl_busbw", &Config::ddp_pad_buckets_for_high_nccl_busbw,
          "pad buckets to a multiple of 2^16 elements")
      .alias("pad-buckets-for-high-nccl-busbw");
  t.field("ddp_average_in_collective", &Config::ddp_average_in_collective,
          "average gradients in the collective instead of scaling them before it")
      .alias("average-in-collective");
  t.field("ddp_reduce_scatter_with_fp32_accumulation",
          &Config::ddp_reduce_scatter_with_fp32_accumulation,
          "send gradients in 16 bits and add them in fp32, with --use-distributed-optimizer")
      .alias("reduce-scatter-with-fp32-accumulation");
  t.field("ddp_grad_compression", &Config::ddp_grad_compression,
          "compress the gradients that are sent; bf16: round to bfloat16; low-rank: send two "
          "low-rank factors with error feedback (PowerSGD)")
      .choices({"none", "bf16", "low-rank"})
      .left_out_of_check("--ddp-grad-compression");
  t.field("ddp_grad_compression_rank", &Config::ddp_grad_compression_rank,
          "rank of the factors with --ddp-grad-compression low-rank")
      .between(1, 1024);
  t.field("check_weight_hash_across_dp_replicas_interval",
          &Config::check_weight_hash_across_dp_replicas_interval,
          "number of iterations between checks that all replicas have equal weights, which is also "
          "checked before a checkpoint is complete; 0: never")
      .between(0, kMaxSize);
}

void add_optimizer_fields(FieldTable<ParallelConfig>& t) {
  using Config = ParallelConfig;
  t.field("use_distributed_optimizer", &Config::use_distributed_optimizer,
          "shard the optimizer state over the data-parallel ranks (ZeRO-1)");
  t.field("num_distributed_optimizer_instances", &Config::num_distributed_optimizer_instances,
          "number of copies of the optimizer state; each is sharded over a group of data-parallel "
          "ranks")
      .between(1, kMaxSize);
  t.field(
      "overlap_param_gather", &Config::overlap_param_gather,
      "overlap the all-gather of updated weights with the next forward pass, or, when weights are "
      "sharded, gather each layer's during the layer before it");
}

/// What data-parallel ranks divide among them, under the names of Megatron-LM, PyTorch and
/// DeepSpeed.
void add_sharding_fields(FieldTable<ParallelConfig>& t) {
  using Config = ParallelConfig;
  t.field("use_megatron_fsdp", &Config::use_megatron_fsdp,
          "shard weights, gradients and optimizer state over the data-parallel ranks, or what "
          "--data-parallel-sharding-strategy says")
      .alias("use-custom-fsdp");
  t.field(
       "data_parallel_sharding_strategy", &Config::data_parallel_sharding_strategy,
       "what data-parallel ranks divide: no_shard: nothing; optim: the optimizer state (ZeRO-1); "
       "optim_grads: and gradients (ZeRO-2); optim_grads_params: and weights (ZeRO-3); none: "
       "optim_grads_params with --use-megatron-fsdp")
      .choices({"no_shard", "optim", "optim_grads", "optim_grads_params"})
      .none_is_empty();
  t.field("zero_stage", &Config::zero_stage,
          "DeepSpeed's name of --data-parallel-sharding-strategy: 0 to 3")
      .between(0, 3);
  t.field(
       "outer_dp_sharding_strategy", &Config::outer_dp_sharding_strategy,
       "what the instances of --num-distributed-optimizer-instances divide among them; optim: the "
       "optimizer state and main weights of their slices")
      .choices({"no_shard", "optim"});
  t.field("use_torch_fsdp2", &Config::use_torch_fsdp2,
          "PyTorch's name of --data-parallel-sharding-strategy optim_grads_params");
  t.field("torch_fsdp2_reshard_after_forward", &Config::torch_fsdp2_reshard_after_forward,
          "with --use-torch-fsdp2, keep the weights whole: optim_grads instead of "
          "optim_grads_params")
      .off_flag("torch-fsdp2-no-reshard-after-forward");
  t.field("suggested_communication_unit_size", &Config::suggested_communication_unit_size,
          "gather and reduce layers together until they have this number of elements; none: each "
          "layer by itself")
      .between(1, kMaxSize);
}

void add_transport_fields(FieldTable<ParallelConfig>& t) {
  using Config = ParallelConfig;
  t.group("Devices and transport");
  t.field("device", &Config::device,
          "device to compute on; auto: a GPU if a driver and the CUDA plugin are found, else the "
          "CPU")
      .choices({"auto", "cpu", "cuda"});
  t.field("distributed_backend", &Config::distributed_backend,
          "library for communication between GPUs")
      .choices({"nccl", "gloo"});
  t.field("cpu_transport", &Config::cpu_transport,
          "transport between CPU ranks; auto: shared memory within a host, Gloo across hosts")
      .choices({"auto", "shared-memory", "gloo"})
      .left_out_of_check();
  t.field("distributed_timeout_minutes", &Config::distributed_timeout_minutes,
          "timeout of communication between ranks, in minutes")
      .above(0)
      .at_most(100000);
  t.field("hang_warning_seconds", &Config::hang_warning_seconds,
          "warn when ranks do not arrive for this many seconds, and say which, where they are and "
          "who waits for them; 0: never")
      .between(0, 86400);
  t.field("hang_report_dir", &Config::hang_report_dir,
          "folder in which every rank writes its last calls and its stacks on SIGUSR2 and when "
          "ranks die or do not arrive; none: hang-reports in --tensorboard-dir or --save (see "
          "`megatron hang-report`)")
      .value_name("DIR");
  t.field("inprocess_restart", &Config::inprocess_restart,
          "after a failure of another rank, a rank's process continues as a rank of the next start "
          "and keeps its libraries, its CUDA context and the layers of the model (needs `megatron "
          "launch --max-restarts`)");
  t.field("inprocess_max_iterations", &Config::inprocess_max_iterations,
          "starts of the run that one process may take part in before it is replaced; none: any "
          "number")
      .at_least(1)
      .value_name("N");
  t.field("log_comm", &Config::log_comm,
          "print calls, bytes and waiting time of the communication on each axis with each log "
          "line")
      .left_out_of_check();
}

}  // namespace

const FieldTable<ParallelConfig>& parallel_table() {
  using Config = ParallelConfig;
  return field_table<Config>([](auto& t) {
    t.group("Parallel layout");
    t.field("tensor_model_parallel_size", &Config::tensor_model_parallel_size,
            "number of ranks that each layer is sharded over")
        .between(1, kMaxSize)
        .older_name("model-parallel-size");
    t.field("pipeline_model_parallel_size", &Config::pipeline_model_parallel_size,
            "number of ranks that the layers are divided among")
        .between(1, kMaxSize);
    t.field("context_parallel_size", &Config::context_parallel_size,
            "number of ranks that each sequence is divided among")
        .between(1, kMaxSize);
    t.field("cp_comm_type", &Config::cp_comm_type,
            "how the ranks of --context-parallel-size exchange keys and values, once or for each "
            "layer: p2p: they travel around a ring while attention computes; all_gather: every "
            "rank gathers all; a2a: attention is divided by heads; a2a+p2p: by heads within groups "
            "of neighbouring ranks, and a ring over the groups");
    t.field("hierarchical_context_parallel_sizes", &Config::hierarchical_context_parallel_sizes,
            "for --cp-comm-type a2a+p2p: number of ranks that divide heads, and number of such "
            "groups in a ring")
        .between(1, kMaxSize);
    t.field("hybrid_context_parallel", &Config::hybrid_context_parallel,
            "divide each document over as many ranks as its length needs: short documents stay on "
            "one rank, long ones take 2, 4, ... ranks that hold the same weights")
        .on_resume(kOtherSums);
    t.field("max_seqlen_per_dp_cp_rank", &Config::max_seqlen_per_dp_cp_rank,
            "for --hybrid-context-parallel: largest number of tokens of a microbatch on one rank")
        .at_least(0)
        .on_resume(kOtherSums);
    t.field("expert_model_parallel_size", &Config::expert_model_parallel_size,
            "number of ranks that the experts are divided among")
        .between(1, kMaxSize);
    t.field("expert_tensor_parallel_size", &Config::expert_tensor_parallel_size,
            "number of ranks that each expert is sharded over; none: --tensor-model-parallel-size")
        .between(1, kMaxSize);
    t.field("use_tp_pp_dp_mapping", &Config::use_tp_pp_dp_mapping,
            "order ranks as tp-cp-ep-pp-dp instead of tp-cp-ep-dp-pp");
    add_tensor_fields(t);
    add_schedule_fields(t);
    add_stage_fields(t);
    add_gradient_fields(t);
    add_optimizer_fields(t);
    add_sharding_fields(t);
    add_transport_fields(t);
  });
}

}  // namespace megatron
