#include "megatron/training/resilience/diagnosis/op_trace.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <unordered_set>

#include "megatron/config/transformer_config.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/pipeline/run_schedule.h"
#include "megatron/schedules/messages.h"
#include "megatron/training/resilience/diagnosis/tensor_statistics.h"
#include "megatron/training/step/router_step.h"

namespace megatron {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

bool is_finite(const at::Tensor& tensor) {
  return !tensor.defined() || !at::isFloatingType(tensor.scalar_type()) ||
         at::isfinite(tensor.detach()).all().item<bool>();
}

bool all_finite(const variable_list& tensors) { return std::ranges::all_of(tensors, is_finite); }

/// Calls a function after an autograd node has run, with the gradients of its inputs and outputs.
class NodePostHook : public torch::autograd::FunctionPostHook {
 public:
  using Callback =
      std::function<void(const variable_list& of_inputs, const variable_list& of_outputs)>;
  explicit NodePostHook(Callback callback) : callback_(std::move(callback)) {}
  variable_list operator()(const variable_list& of_inputs,
                           const variable_list& of_outputs) override {
    callback_(of_inputs, of_outputs);
    return of_inputs;
  }

 private:
  Callback callback_;
};

constexpr double kNoPosition = std::numeric_limits<double>::infinity();

/// Maps the chunks of a rank to stages.
struct RankStages {
  ChunkOrder order;
  std::int64_t num_ranks, num_chunks, rank;

  std::int64_t stage(std::int64_t chunk) const { return stage_of(order, num_ranks, rank, chunk); }
  /// Returns the position of a step when one microbatch runs forward through all stages, then
  /// backward.
  double place(const ScheduleStep& step) const {
    const std::int64_t at = stage(step.chunk);
    return static_cast<double>(
        step.kind == StepKind::forward ? at : 2 * num_ranks * num_chunks - 1 - at);
  }
};

class OpTracer : public UnitHooks, public StepListener {
 public:
  OpTracer(const Model& model, ParamStore& weights, const Microbatch& microbatch,
           const RankStages& stages)
      : model_(model), weights_(weights), stages_(stages) {
    const at::Tensor& field = microbatch.first_field();
    batch_ = field.size(0);
    sequence_ = field.dim() > 1 ? field.size(1) : 1;
    has_whole_sequences_ = !microbatch.has("num_tokens");
    packed_ = microbatch.packed;
  }

  void after_op(const std::string& op, const at::Tensor& output) override {
    trace_.ops.push_back({.op = op, .output = tensor_statistics(output), .gradient = std::nullopt});
    save_attention_inputs(op, output);
    if (!trace_.first_bad && !trace_.ops.back().output.finite()) check_output(op, output);
    if (!output.requires_grad() || trace_.first_bad) return;
    output.register_hook([this, index = trace_.ops.size() - 1](const at::Tensor& gradient) {
      trace_.ops[index].gradient = tensor_statistics(gradient);
    });
    hook_nodes(output.grad_fn().get(), op);
  }

  void begin(const ScheduleStep& step) override {
    step_ = step;
    first_op_ = trace_.ops.size();
  }
  void end(const ScheduleStep& /*step*/) override {}

  OpTrace& trace() { return trace_; }
  /// Blames the loss if every recorded output was finite. `token_losses` [b, s] identify the
  /// samples.
  void after_loss(const StepOutput& output);
  /// Keeps the first bad op only on the ranks where it occurred first. Returns whether any rank has
  /// one. Collective over the ranks of `all_reduce_min`.
  bool keep_earliest(const std::function<double(double)>& all_reduce_min);
  /// Blames the accumulated gradient of a parameter if the gradients of all nodes were finite.
  void after_backward();
  void check_gradient(const Parameter& parameter, const at::Tensor& gradient);

 private:
  void set_first_bad(FirstBadOp bad);
  void save_attention_inputs(const std::string& op, const at::Tensor& output);
  void check_output(const std::string& op, const at::Tensor& output);
  void check_node_gradients(const std::string& op, const std::string& node,
                            const variable_list& of_inputs, const variable_list& of_outputs);
  /// Assigns `op` to every unassigned node that leads to `node`.
  void hook_nodes(Node* node, const std::string& op);
  std::vector<std::int64_t> samples_of(const at::Tensor& tensor) const;

  const Model& model_;
  ParamStore& weights_;
  const RankStages stages_;
  ScheduleStep step_ = {};    ///< current step
  std::size_t first_op_ = 0;  ///< index of the first op of that step
  /// Position of the first bad op's step among the steps of all stages.
  double first_bad_position_ = kNoPosition;
  std::int64_t batch_ = 0, sequence_ = 0;
  std::optional<PackedSequences> packed_;
  bool has_whole_sequences_ = true;  ///< false with context parallelism (context_slice())
  OpTrace trace_;
  std::unordered_set<Node*> hooked_nodes_;
  /// Query, key and value of the current layer.
  std::map<std::string, at::Tensor> attention_inputs_;
};

/// Returns the packed sequences in which rows of `tensor` are not finite: [s, 1, …], [s, …] or [1,
/// s]. Empty when the rows are those of one rank of several.
std::vector<std::int64_t> packed_sequences_of(const at::Tensor& tensor,
                                              const std::vector<std::int64_t>& cu_seqlens) {
  const at::Tensor rows = tensor.dim() == 2 && tensor.size(0) == 1 ? tensor.t() : tensor;
  if (rows.dim() < 1 || rows.size(0) != cu_seqlens.back()) return {};
  std::set<std::int64_t> sequences;
  for (const std::int64_t row : non_finite_indices(rows, 0))
    sequences.insert(std::ranges::upper_bound(cu_seqlens, row) - cu_seqlens.begin() - 1);
  return {sequences.begin(), sequences.end()};
}

/// Returns the rows of the microbatch in which `tensor` is not finite: [positions, b, h …] of all
/// positions or those of a rank, [s, b], [s·b, …] or [b, s]. With packed sequences their numbers.
std::vector<std::int64_t> OpTracer::samples_of(const at::Tensor& tensor) const {
  if (!tensor.defined()) return {};
  if (packed_) return packed_sequences_of(tensor, packed_->cu_seqlens);
  if (tensor.dim() >= 1 && tensor.size(0) == sequence_ * batch_)
    return non_finite_indices(tensor.reshape({sequence_, batch_, -1}), 1);
  if (tensor.dim() >= 2 && tensor.size(1) == batch_ &&
      (tensor.size(0) == sequence_ || tensor.dim() >= 3))
    return non_finite_indices(tensor, 1);
  if (tensor.dim() >= 2 && tensor.size(0) == batch_ && tensor.size(1) == sequence_)
    return non_finite_indices(tensor, 0);
  return {};
}

void OpTracer::save_attention_inputs(const std::string& op, const at::Tensor& output) {
  for (const char* name : {"query", "key", "value"}) {
    if (op.ends_with(std::string(".") + name)) attention_inputs_[name] = output.detach();
  }
}

void OpTracer::set_first_bad(FirstBadOp bad) {
  trace_.first_bad = std::move(bad);
  first_bad_position_ = stages_.place(step_);
}

bool OpTracer::keep_earliest(const std::function<double(double)>& all_reduce_min) {
  const double first = all_reduce_min ? all_reduce_min(first_bad_position_) : first_bad_position_;
  if (first_bad_position_ > first) trace_.first_bad.reset();
  return first != kNoPosition;
}

void OpTracer::check_output(const std::string& op, const at::Tensor& output) {
  FirstBadOp bad{.pass = FirstBadOp::Pass::forward,
                 .op = op,
                 .what = "output",
                 .statistics = trace_.ops.back().output};
  bad.samples = samples_of(output);
  if (trace_.ops.size() - 1 == first_op_) {
    bad.is_first_of_stage = stages_.stage(step_.chunk) > 0;
  } else {
    bad.input = trace_.ops[trace_.ops.size() - 2].op;
    bad.before = trace_.ops[trace_.ops.size() - 2].output;
  }
  if (op.ends_with(".core_attention") && attention_inputs_.size() == 3 && has_whole_sequences_ &&
      !packed_) {
    if (auto scores = non_finite_scores(attention_inputs_["query"], attention_inputs_["key"],
                                        model_.config())) {
      bad.detail = "scores";
      bad.what = "scores query·key of head " + std::to_string(scores->head);
      bad.statistics = scores->statistics;
      bad.samples = {scores->sample};
    }
  }
  set_first_bad(std::move(bad));
}

void OpTracer::after_loss(const StepOutput& output) {
  trace_.loss_sum = output.root.item<double>();
  trace_.tokens = output.count.item<double>();
  const bool blames_loss = trace_.first_bad && trace_.first_bad->op == "loss";
  if (std::isfinite(trace_.loss_sum) || (trace_.first_bad && !blames_loss)) return;
  if (!trace_.first_bad) set_first_bad({.op = "loss"});
  FirstBadOp& bad = *trace_.first_bad;
  bad.what = is_finite(output.token_losses) ? "sum of the losses" : "loss of each token";
  bad.statistics =
      tensor_statistics(is_finite(output.token_losses) ? output.root : output.token_losses);
  bad.samples = samples_of(output.token_losses);
}

void OpTracer::check_node_gradients(const std::string& op, const std::string& node,
                                    const variable_list& of_inputs,
                                    const variable_list& of_outputs) {
  if (trace_.first_bad || !all_finite(of_outputs)) return;
  const auto set_bad_gradient = [&](const std::string& what, const at::Tensor& gradient) {
    FirstBadOp bad{.pass = FirstBadOp::Pass::backward,
                   .op = op,
                   .detail = node,
                   .what = what,
                   .statistics = tensor_statistics(gradient)};
    bad.samples = samples_of(gradient);
    for (const at::Tensor& reached : of_outputs) {
      if (reached.defined()) bad.before = tensor_statistics(reached);
    }
    set_first_bad(std::move(bad));
  };
  for (const at::Tensor& gradient : of_inputs) {
    if (!is_finite(gradient)) return set_bad_gradient("gradient of its input", gradient);
  }
  for (const Parameter* parameter : parameters_of(weights_, op)) {
    // A rank keeps no whole gradient of a unit that is done when gradients are sharded.
    if (parameter->grad().defined() && !is_finite(parameter->grad()))
      return set_bad_gradient("gradient of " + parameter->name(), parameter->grad());
  }
}

void OpTracer::hook_nodes(Node* node, const std::string& op) {
  std::vector<Node*> pending{node};
  while (!pending.empty()) {
    Node* current = pending.back();
    pending.pop_back();
    if (current == nullptr || !hooked_nodes_.insert(current).second) continue;
    current->add_post_hook(std::make_unique<NodePostHook>(
        [this, op, name = current->name()](const variable_list& of_inputs,
                                           const variable_list& of_outputs) {
          check_node_gradients(op, name.starts_with("torch::autograd::CppNode") ? "" : name,
                               of_inputs, of_outputs);
        }));
    for (const auto& edge : current->next_edges()) pending.push_back(edge.function.get());
  }
}

void OpTracer::after_backward() {
  if (trace_.first_bad) return;
  for (const Parameter* parameter : weights_.parameters())
    check_gradient(*parameter, parameter->grad());
  for (const ParameterPiece& piece : weights_.pieces()) {
    const ParamBucket& bucket = weights_.buckets()[piece.bucket];
    if (bucket.shards_gradients())
      check_gradient(*piece.parameter, piece.of_own(bucket.own_grad, bucket));
  }
}

void OpTracer::check_gradient(const Parameter& parameter, const at::Tensor& gradient) {
  if (trace_.first_bad || !gradient.defined() || is_finite(gradient)) return;
  set_first_bad({.pass = FirstBadOp::Pass::backward,
                 .op = parameter.name(),
                 .what = "gradient of " + parameter.name(),
                 .statistics = tensor_statistics(gradient)});
}

/// Returns a schedule that runs one microbatch forward through all stages, then backward.
Schedule single_microbatch_schedule(const RankStages& stages) {
  Schedule schedule{.name = "diagnosis",
                    .num_ranks = stages.num_ranks,
                    .num_chunks = stages.num_chunks,
                    .num_microbatches = 1,
                    .order = stages.order,
                    .ranks = {}};
  std::vector<ScheduleStep> steps;
  const auto num_chunks = static_cast<std::int32_t>(stages.num_chunks);
  for (std::int32_t chunk = 0; chunk < num_chunks; ++chunk)
    steps.push_back({StepKind::forward, 0, chunk});
  for (std::int32_t chunk = num_chunks; chunk-- > 0;)
    steps.push_back({StepKind::backward, 0, chunk});
  schedule.ranks.assign(static_cast<std::size_t>(stages.num_ranks), steps);
  return with_messages(schedule, /*ahead=*/false);
}

double gradient_scale(const Model& model, const Microbatch& microbatch,
                      const TraceOptions& options) {
  const double count = model.objective().count(microbatch).item<double>();
  return options.gradient_factor / (options.per_token ? 1 : std::max(count, 1.0));
}

/// Returns the microbatch with the gradient that the auxiliary losses of routers receive in
/// training, so that the traced pass has them.
Microbatch with_aux_loss_gradient(const Model& model, Microbatch microbatch,
                                  const TraceOptions& options) {
  if (model.config().moe.num_experts == 0) return microbatch;
  at::Tensor gradient = at::scalar_tensor(options.gradient_factor,
                                          microbatch.at("loss_mask").options().dtype(at::kDouble));
  if (options.per_token) gradient = gradient * model.objective().count(microbatch).clamp_min(1);
  microbatch.tensors["aux_loss_gradient"] = gradient;
  return microbatch;
}

}  // namespace

std::vector<const Parameter*> parameters_of(const ParamStore& weights, const std::string& op) {
  std::vector<const Parameter*> found;
  for (const Parameter* parameter : weights.parameters()) {
    const std::string& name = parameter->name();
    if (name.starts_with(op + ".") || name.starts_with(op + "_")) found.push_back(parameter);
  }
  if (op != "loss") return found;
  const Parameter* output = weights.find("output_layer.weight");
  if (output == nullptr) output = weights.find("embedding.word_embeddings.weight");
  if (output != nullptr) found.push_back(output);
  return found;
}

OpTrace trace_microbatch(Model& model, ParamStore& weights, const Microbatch& microbatch,
                         const TraceOptions& options) {
  const Axis alone{"pp"};
  const Axis& pp = options.pp != nullptr ? *options.pp : alone;
  const RankStages stages{options.order, pp.size, model.num_chunks(), pp.rank};
  OpTracer tracer(model, weights, microbatch, stages);
  OpTrace& trace = tracer.trace();
  const at::AutoGradMode with_gradients(true);
  const UnitHooksScope hooked(model, tracer);
  for (const ParamBucket& bucket : weights.buckets()) {
    if (bucket.grad.defined()) bucket.grad.zero_();
  }
  weights.zero_gradients();
  begin_router_step(model);  // losses that count over the batch depend on this microbatch alone
  bool is_bad = false;
  const auto on_loss = [&](std::size_t /*microbatch*/, const StepOutput& output) {
    tracer.after_loss(output);
    return at::scalar_tensor(gradient_scale(model, microbatch, options), output.root.options());
  };
  const auto before_backward = [&] {
    return !(is_bad = tracer.keep_earliest(options.all_reduce_min));
  };
  const std::vector<Microbatch> batch{with_aux_loss_gradient(model, microbatch, options)};
  run_schedule(single_microbatch_schedule(stages), {model, weights, pp},
               {.batch = batch,
                .on_loss = on_loss,
                .before_backward = before_backward,
                .listener = &tracer});
  const std::vector<double> totals =  // nonzero only on the last stage
      all_reduce_sum({pp, weights.device()}, {trace.loss_sum, trace.tokens}, "diagnosis");
  trace.loss_sum = totals[0], trace.tokens = totals[1];
  trace.gradient_scale = gradient_scale(model, microbatch, options);
  if (is_bad) return trace;
  weights.finalize_local_gradients();
  if (!tracer.keep_earliest(options.all_reduce_min)) tracer.after_backward();
  return trace;
}

}  // namespace megatron
