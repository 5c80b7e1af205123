#include "megatron/planner/layer_trace.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "megatron/base/error.h"
#include "megatron/config/context_sizes.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/freeze.h"
#include "megatron/models/model_spec.h"
#include "megatron/nn/forward_context.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/offload_store.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "megatron/params/store_options.h"
#include "megatron/planner/measure_layers.h"

namespace megatron {
namespace {

using Sent = std::map<std::string, double, std::less<>>;

/// A group that sends nothing, but counts what this rank would send. Numbers on the CPU that a
/// gather or an exchange sends, such as counts of rows that follow, arrive as if every rank had
/// those of this one.
class CountingComm final : public Comm {
 public:
  CountingComm(const Axis& axis, Sent& sent)
      : name_(axis.name), rank_(axis.rank), size_(axis.size), sent_(sent) {
    for (std::int64_t rank = 0; rank < size_; ++rank) ranks_.push_back(rank);
  }
  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  const std::vector<std::int64_t>& ranks() const override { return ranks_; }

 private:
  struct Done final : Work {
    void wait() override {}
  };
  PendingWork start(CommCall call) override {
    run(std::move(call));
    return std::make_unique<Done>();
  }
  void run(CommCall call) override {
    sent_[name_] += sent_bytes(call);
    const bool gathers = call.operation == CommOperation::all_gather;
    if ((!gathers && call.operation != CommOperation::all_to_all) || !call.out.is_cpu()) return;
    MEGATRON_CHECK(!call.is_uneven(), describe(call), " of numbers on the CPU in a trace");
    const at::Tensor own = gathers ? call.in.view({-1}) : call.in.view({size_, -1})[rank_];
    call.out.view({size_, -1}).copy_(own.unsqueeze(0));
  }
  double sent_bytes(const CommCall& call) const {
    const double ranks = static_cast<double>(size_), share = (ranks - 1) / ranks;
    const auto bytes = [](const at::Tensor& x) { return static_cast<double>(x.nbytes()); };
    switch (call.operation) {
      case CommOperation::all_reduce:
        return 2 * share * bytes(call.in);
      case CommOperation::all_gather:
        return share * bytes(call.out);
      case CommOperation::all_to_all:
        if (call.is_uneven())
          return bytes(call.in) -
                 bytes(call.in.narrow(0, 0, call.rows.in[static_cast<std::size_t>(rank_)]));
        [[fallthrough]];
      case CommOperation::reduce_scatter:
      case CommOperation::broadcast:
        return share * bytes(call.in);
      case CommOperation::send:
        return bytes(call.in);
      case CommOperation::recv:
      case CommOperation::barrier:
        break;
    }
    return 0;
  }

  std::string name_;
  std::int64_t rank_, size_;
  std::vector<std::int64_t> ranks_;
  Sent& sent_;
};

/// A place for offloaded tensors that only counts them.
class CountingStore final : public OffloadStore {
 public:
  std::unique_ptr<OffloadedTensor> put(at::Tensor tensor) override {
    bytes_ += static_cast<double>(tensor.nbytes());
    return std::make_unique<Stored>(std::move(tensor));
  }
  double bytes() const { return bytes_; }

 private:
  class Stored final : public OffloadedTensor {
   public:
    explicit Stored(at::Tensor tensor) : tensor_(std::move(tensor)) {}
    void prefetch(at::Tensor /*into*/) override {}
    at::Tensor get() override { return std::move(tensor_); }
    at::Tensor read() override { return tensor_; }

   private:
    at::Tensor tensor_;
  };
  double bytes_ = 0;
};

/// Hooks around all others: they see what the hooks of recomputation and offload leave in memory.
class KeptTensors final : public SavedTensorHooks {
 public:
  std::shared_ptr<SavedTensor> save(const at::Tensor& tensor) override {
    if (is_new(tensor))
      kept_.push_back({NodeScope::current(), static_cast<double>(tensor.storage().nbytes())});
    return nullptr;
  }
  void share(const std::vector<at::Tensor>& tensors) override {
    for (const at::Tensor& tensor : tensors) is_new(tensor);
  }
  /// Returns whether the memory of `tensor` is seen for the first time. It will not be counted
  /// again.
  bool is_new(const at::Tensor& tensor) {
    if (!tensor.defined()) return false;
    const c10::Storage& storage = tensor.storage();
    return storages_.emplace(storage.unsafeGetStorageImpl(), storage).second;
  }
  std::vector<LayerTrace::Kept> take() { return std::move(kept_); }

 private:
  /// They stay, so that no other gets the same address.
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
  std::vector<LayerTrace::Kept> kept_;
};

/// Returns the rank as the middle stage of a pipeline, alone but for groups that count. The ranks
/// of dp have no part in a layer.
Rank counting_rank(Rank rank, Sent& sent) {
  for (Axis* axis : {&rank.tp, &rank.cp, &rank.cp_a2a, &rank.cp_p2p, &rank.tp_cp, &rank.ep,
                     &rank.etp, &rank.etp_ep})
    axis->comm = axis->size > 1 ? std::make_shared<CountingComm>(*axis, sent) : nullptr;
  rank.pp = {.name = "pp", .rank = 1, .size = 3};
  rank.dp = Axis{"dp"};
  rank.dp_cp = Axis{"dp-cp"};
  rank.edp = Axis{"edp"};
  rank.model = rank.tp;
  rank.expert_model = rank.ep;
  rank.activities = nullptr;
  rank.device = at::kMeta;
  return rank;
}

/// Returns a pipeline of which the second of three ranks has one layer.
PipelineLayout one_layer(std::int64_t layer) {
  return {.num_ranks = 3,
          .stages = {{.has_embedding = true},
                     {.first_layer = layer, .num_layers = 1},
                     {.first_layer = layer + 1, .has_output = true}}};
}

/// Returns as many tokens as the rank holds. Which they are does not matter.
Microbatch meta_microbatch(Settings settings, const ModelFamily& family, Rank rank) {
  settings.training->seq_length /= rank.cp.size;
  rank.cp = Axis{"cp"};
  return synthetic_microbatch(settings, family, rank);
}

MakeModelOptions model_options(const Settings& settings) {
  return {.vocab_pad_multiple = settings.tokenizer->make_vocab_size_divisible_by,
          .dtype = params_dtype(*settings.training)};
}

bool freezes(const Settings& settings) {
  return !settings.optimizer->freeze.empty() || !settings.optimizer->train_only.empty();
}

/// Returns whether the layer is in the stage with the embedding. Measured stages, which the
/// settings do not say, are taken for even ones.
bool is_in_first_stage(const Settings& settings, std::int64_t layer) {
  ParallelConfig parallel = *settings.parallel;
  parallel.pipeline_split = ParallelConfig().pipeline_split;
  return layer < pipeline_layout(parallel, *settings.model).stages.front().num_layers;
}

LayerTrace trace_layer(const Settings& settings, const ModelFamily& family, const Rank& given,
                       std::int64_t layer, const ActivationPlan& plan, bool has_gradient) {
  LayerTrace trace;
  CountingStore store;
  KeptTensors kept;
  const Rank rank = counting_rank(given, trace.sent);
  const TransformerConfig config = as_one_stack(*settings.model);
  const PipelineLayout layout = one_layer(layer);
  MakeModelOptions options = model_options(settings);
  options.layout = &layout;
  options.activations = &plan;
  options.offload_store = &store;
  const auto model = family.make(config, rank, options);
  freeze_parameters(*model, *settings.optimizer);
  const ParamStore weights(declared_parameters(*model), {.device = at::kMeta,
                                                         .dtype = options.dtype,
                                                         .grad_dtype = at::kFloat,
                                                         .experts = ReplicaGroups{}});
  for (const ParamBucket& bucket : weights.buckets()) kept.is_new(bucket.value);
  const Microbatch microbatch = meta_microbatch(settings, family, rank);
  const Pass pass{.microbatch = microbatch, .training = true};
  Activations inputs;
  for (const ActivationSpec& spec : model->input_specs(0, pass)) {
    inputs.push_back(at::empty(spec.shape, at::TensorOptions(spec.dtype).device(at::kMeta))
                         .set_requires_grad(has_gradient));
    if (inputs.size() > 1) kept.is_new(inputs.back());  // kept by the layer that published it
  }
  const at::AutoGradMode records(true);
  at::Tensor output;
  {
    const SavedTensorHooksScope scope(&kept);
    output = model->forward_chunk(0, pass, inputs).activations.front();
  }
  trace.kept = kept.take();
  trace.offloaded = store.bytes();
  // Backward matters for what it sends.
  const bool begins_decoder = config.decoder_num_layers > 0 && layer == config.encoder_num_layers();
  if (has_gradient && !trace.sent.empty())
    gradient_of(output, begins_decoder ? inputs.back() : inputs.front(), at::empty_like(output));
  return trace;
}

}  // namespace

double LayerTrace::kept_bytes() const {
  double bytes = 0;
  for (const Kept& one : kept) bytes += one.bytes;
  return bytes;
}

double LayerTrace::kept_by(NodeSet nodes) const {
  double bytes = 0;
  for (const Kept& one : kept)
    if (nodes.contains(one.node)) bytes += one.bytes;
  return bytes;
}

double LayerTrace::kept_until(LayerNode node) const {
  double bytes = 0, until = 0;
  for (const Kept& one : kept) {
    bytes += one.bytes;
    if (one.node == node) until = bytes;
  }
  return until > 0 ? until : bytes;
}

double LayerTrace::sent_over(std::string_view axis) const {
  const auto found = sent.find(axis);
  return found != sent.end() ? found->second : 0;
}

bool LayerTraces::needs_input_gradient(const Settings& settings, const Rank& rank,
                                       std::int64_t layer) {
  // Rows from another stage have a gradient, whatever it trains.
  if (!freezes(settings) || rank.pp.rank > 0 || !is_in_first_stage(settings, layer)) return true;
  if (trains_before_.empty()) {
    Rank alone = rank;
    alone.pp = Axis{"pp"};
    const auto model = family_.make(*settings.model, alone, model_options(settings));
    freeze_parameters(*model, *settings.optimizer);
    bool trains = false;
    for (Module* unit : model->units()) {
      if (unit->layer_index()) trains_before_.push_back(trains);
      unit->visit([&](Module& module) {
        for (const auto& parameter : module.parameters())
          trains = trains || parameter->is_trained();
      });
    }
  }
  // A repeated layer is one.
  return trains_before_.at(std::min(static_cast<std::size_t>(layer), trains_before_.size() - 1));
}

const LayerTrace& LayerTraces::of(const Settings& settings, const Rank& rank, std::int64_t layer,
                                  const ActivationPlan& plan) {
  const bool has_gradient = needs_input_gradient(settings, rank, layer);
  const TrainingConfig& training = *settings.training;
  LayerPolicy policy = plan.of(layer);
  policy.joins_previous = false;  // a trace has one layer
  Key key{.kind = settings.model->kind(layer),
          .policy = policy,
          .numbers = {rank.tp.size, rank.cp.size, rank.cp_a2a.size, rank.ep.size, rank.etp.size,
                      rank.sequence_parallel ? 1 : 0, training.micro_batch_size,
                      tokens_per_rank(settings, rank.cp.size),
                      static_cast<std::int64_t>(params_dtype(training)),
                      policy.full && plan.distributes_saved_activations ? 1 : 0,
                      policy.offloads() ? plan.min_offloaded_elements : 0,
                      freezes(settings) ? layer : -1, has_gradient ? 1 : 0}};
  const auto found = std::ranges::find(traces_, key, &std::pair<Key, LayerTrace>::first);
  if (found != traces_.end()) return found->second;
  LayerTrace trace = trace_layer(settings, family_, rank, layer, plan, has_gradient);
  return traces_.emplace_front(std::move(key), std::move(trace)).second;  // it is asked for next
}

}  // namespace megatron
