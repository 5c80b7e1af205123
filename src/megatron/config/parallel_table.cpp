// The flags of the layout: which ranks share what, how gradients and weights travel between them,
// and where a rank computes.
#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

void add_tensor_fields(FieldTable<ParallelConfig>& t) {
  using Config = ParallelConfig;
  t.field("sequence_parallel", &Config::sequence_parallel,
          "split norms and dropout along the sequence over the tensor-parallel ranks");
  t.field(
       "tp_comm_overlap", &Config::tp_comm_overlap,
       "products and the collectives around them in pieces that overlap; needs --sequence-parallel")
      .note(
          "on a CPU the pieces can cost more than the overlap saves: compare the step time without "
          "it");
  t.field("no_async_tensor_model_parallel_allreduce",
          &Config::no_async_tensor_model_parallel_allreduce,
          "reduce a layer's input gradient before its weight gradient is computed, not meanwhile");
}

void add_schedule_fields(FieldTable<ParallelConfig>& t) {
  using Config = ParallelConfig;
  t.group("Pipeline");
  t.field("pipeline_schedule", &Config::pipeline_schedule,
          "order of forwards and backwards; none: 1f1b, or interleaved with several chunks per "
          "rank; auto: the fastest that a search finds")
      .choices({"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v",
                "combined-1f1b", "auto"});
  t.field("pipeline_activation_limit", &Config::pipeline_activation_limit,
          "microbatches whose activations a rank may keep; one counts 1 in as many layers as a "
          "rank has on average")
      .above(0)
      .at_most(kMaxSize);
  t.field("microbatch_group_size_per_virtual_pipeline_stage",
          &Config::microbatch_group_size_per_virtual_pipeline_stage,
          "of interleaved: microbatches that pass a chunk before the next chunk's turn; none: as "
          "many as ranks")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("overlap_p2p_communication", &Config::overlap_p2p_communication,
          "wait for each message between stages where it is sent and received");
}

void add_stage_fields(FieldTable<ParallelConfig>& t) {
  using Config = ParallelConfig;
  t.field("num_virtual_stages_per_pipeline_rank", &Config::num_virtual_stages_per_pipeline_rank,
          "chunks of the model on each rank")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("num_layers_per_virtual_pipeline_stage", &Config::num_layers_per_virtual_pipeline_stage,
          "most layers of a chunk, in place of the number of chunks")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("decoder_first_pipeline_num_layers", &Config::decoder_first_pipeline_num_layers,
          "layers of the first rank; the others share the rest")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("decoder_last_pipeline_num_layers", &Config::decoder_last_pipeline_num_layers,
          "layers of the last rank; the others share the rest")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("account_for_embedding_in_pipeline_split",
          &Config::account_for_embedding_in_pipeline_split, "the embedding counts as a layer");
  t.field("account_for_loss_in_pipeline_split", &Config::account_for_loss_in_pipeline_split,
          "the output layer and the loss count as a layer");
  t.field("pipeline_model_parallel_layout", &Config::pipeline_model_parallel_layout,
          "stage by stage: E embedding, t layer, L output, | next stage, x*n and (...)*n repeat");
  t.field("pipeline_split", &Config::pipeline_split,
          "layers by number, or by what embedding, layer and output cost in a measurement before "
          "the run")
      .choices({"even", "measured"});
}

void add_gradient_fields(FieldTable<ParallelConfig>& t) {
  using Config = ParallelConfig;
  t.group("Data parallelism");
  t.field("overlap_grad_reduce", &Config::overlap_grad_reduce,
          "reduce each bucket of gradients as soon as backward has filled it");
  t.field("ddp_bucket_size", &Config::ddp_bucket_size,
          "gradients in a bucket; none: max(40e6, 1e6 x ranks), one bucket without "
          "--overlap-grad-reduce")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("ddp_num_buckets", &Config::ddp_num_buckets,
          "how many buckets there are, in place of their size")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("ddp_pad_buckets_for_high_nccl_busbw", &Config::ddp_pad_buckets_for_high_nccl_busbw,
          "pad buckets to a multiple of 2^16 elements");
  t.field("ddp_average_in_collective", &Config::ddp_average_in_collective,
          "average in the collective instead of scaling before it");
  t.field("ddp_reduce_scatter_with_fp32_accumulation",
          &Config::ddp_reduce_scatter_with_fp32_accumulation,
          "send 16-bit gradients, add them in fp32; needs --use-distributed-optimizer");
  t.field("ddp_grad_compression", &Config::ddp_grad_compression,
          "what gradients travel as: bf16 numbers, or products of two thin matrices that remember "
          "their error")
      .choices({"none", "bf16", "low-rank"});
  t.field("ddp_grad_compression_rank", &Config::ddp_grad_compression_rank,
          "columns of the thin matrices of low-rank")
      .at_least(1)
      .at_most(1024);
  t.field("check_weight_hash_across_dp_replicas_interval",
          &Config::check_weight_hash_across_dp_replicas_interval,
          "iterations between comparisons of the replicas' weights; 0: never")
      .at_least(0)
      .at_most(kMaxSize);
}

void add_optimizer_fields(FieldTable<ParallelConfig>& t) {
  using Config = ParallelConfig;
  t.field("use_distributed_optimizer", &Config::use_distributed_optimizer,
          "split the optimizer's state over the data-parallel ranks (ZeRO-1)");
  t.field("num_distributed_optimizer_instances", &Config::num_distributed_optimizer_instances,
          "copies of that state: split within each, gradients summed across them")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("overlap_param_gather", &Config::overlap_param_gather,
          "gather updated weights while the next forward runs");
}

void add_transport_fields(FieldTable<ParallelConfig>& t) {
  using Config = ParallelConfig;
  t.group("Devices and transport");
  t.field("device", &Config::device,
          "where to compute; auto: a GPU when driver and CUDA plugin are there, else the CPU")
      .choices({"auto", "cpu", "cuda"});
  t.field("distributed_backend", &Config::distributed_backend,
          "library of the communication between GPUs")
      .choices({"nccl", "gloo"});
  t.field("cpu_transport", &Config::cpu_transport,
          "between processors' ranks; auto: shared memory on one host, Gloo across hosts")
      .choices({"auto", "shared-memory", "gloo"});
  t.field("distributed_timeout_minutes", &Config::distributed_timeout_minutes,
          "how long an operation between ranks may take")
      .above(0)
      .at_most(100000);
  t.field("log_comm", &Config::log_comm,
          "calls, bytes and waiting time of every operation between ranks, by axis, with each log "
          "line");
}

}  // namespace

const FieldTable<ParallelConfig>& parallel_table() {
  using Config = ParallelConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Parallel layout");
    t.field("tensor_model_parallel_size", &Config::tensor_model_parallel_size,
            "ranks that share each layer")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("pipeline_model_parallel_size", &Config::pipeline_model_parallel_size,
            "ranks that share the layers of the model")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("context_parallel_size", &Config::context_parallel_size,
            "ranks that share each sequence")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("expert_model_parallel_size", &Config::expert_model_parallel_size,
            "ranks that share the experts")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("expert_tensor_parallel_size", &Config::expert_tensor_parallel_size,
            "ranks that share each expert")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("use_tp_pp_dp_mapping", &Config::use_tp_pp_dp_mapping,
            "neighbouring ranks in the order tp-cp-ep-pp-dp instead of tp-cp-ep-dp-pp");
    add_tensor_fields(t);
    add_schedule_fields(t);
    add_stage_fields(t);
    add_gradient_fields(t);
    add_optimizer_fields(t);
    add_transport_fields(t);
    return t;
  }();
  return table;
}

}  // namespace megatron
