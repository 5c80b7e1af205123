#include "megatron/training/resilience/diagnosis/op_trace.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_set>

#include "megatron/pipeline/run_schedule.h"
#include "megatron/schedules/messages.h"
#include "megatron/parallel/agreement.h"
#include "megatron/training/resilience/diagnosis/attention_scores.h"

namespace megatron {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

bool is_finite(const at::Tensor& tensor) {
  return !tensor.defined() || !at::isFloatingType(tensor.scalar_type()) || at::isfinite(tensor.detach()).all().item<bool>();
}

bool all_finite(const variable_list& tensors) { return std::ranges::all_of(tensors, is_finite); }

/// Calls back after an autograd node has run, with the gradients of its inputs and outputs.
class AfterNode : public torch::autograd::FunctionPostHook {
 public:
  using Callback = std::function<void(const variable_list& of_inputs, const variable_list& of_outputs)>;
  explicit AfterNode(Callback callback) : callback_(std::move(callback)) {}
  variable_list operator()(const variable_list& of_inputs, const variable_list& of_outputs) override {
    callback_(of_inputs, of_outputs);
    return of_inputs;
  }

 private:
  Callback callback_;
};

constexpr double kNowhere = std::numeric_limits<double>::infinity();

/// Where the chunks of a rank stand among the stages.
struct StagesOfRank {
  ChunkOrder order;
  std::int64_t num_ranks, num_chunks, rank;

  std::int64_t stage(std::int64_t chunk) const { return stage_of(order, num_ranks, rank, chunk); }
  /// A single microbatch passes all stages forward, then all of them backward.
  double place(const ScheduleStep& step) const {
    const std::int64_t at = stage(step.chunk);
    return static_cast<double>(step.kind == StepKind::forward ? at : 2 * num_ranks * num_chunks - 1 - at);
  }
};

class Tracer : public UnitHooks, public StepListener {
 public:
  Tracer(const LanguageModel& model, ParamStore& weights, const Microbatch& microbatch, const StagesOfRank& stages)
      : model_(model), weights_(weights), stages_(stages) {
    const at::Tensor& tokens = microbatch.at("tokens");
    batch_ = tokens.size(0);
    sequence_ = tokens.dim() > 1 ? tokens.size(1) : 1;
  }

  void after_op(const std::string& op, const at::Tensor& output) override {
    trace_.ops.push_back({.op = op, .output = tensor_statistics(output), .gradient = std::nullopt});
    remember_attention(op, output);
    if (!trace_.first_bad && !trace_.ops.back().output.finite()) blame_forward(op, output);
    if (!output.requires_grad() || trace_.first_bad) return;
    output.register_hook(
        [this, index = trace_.ops.size() - 1](const at::Tensor& gradient) { trace_.ops[index].gradient = tensor_statistics(gradient); });
    claim(output.grad_fn().get(), op);
  }

  void begin(const ScheduleStep& step) override {
    step_ = step;
    first_op_ = trace_.ops.size();
  }
  void end(const ScheduleStep& /*step*/) override {}

  OpTrace& trace() { return trace_; }
  /// Blames the loss when every watched output was finite; `token_losses` [b, s] say whose it is.
  void after_loss(const StepOutput& output);
  /// Leaves the blame to the ranks that met the first bad op; whether any did. Collective over the ranks of `least`.
  bool leave_to_first(const std::function<double(double)>& least);
  /// Blames the sum of the gradients of a parameter when every node's own were finite.
  void after_backward();

 private:
  void blame(FirstBadOp bad);
  void remember_attention(const std::string& op, const at::Tensor& output);
  void blame_forward(const std::string& op, const at::Tensor& output);
  void blame_node(const std::string& op, const std::string& node, const variable_list& of_inputs, const variable_list& of_outputs);
  /// Names every node that leads to `node` and has no name yet: those are the nodes of `op`.
  void claim(Node* node, const std::string& op);
  std::vector<std::int64_t> samples_of(const at::Tensor& tensor) const;

  const LanguageModel& model_;
  ParamStore& weights_;
  const StagesOfRank stages_;
  ScheduleStep step_ = {};    ///< under way
  std::size_t first_op_ = 0;  ///< of that step
  double place_ = kNowhere;   ///< of the first bad op: when its step runs, of all stages' steps
  std::int64_t batch_ = 0, sequence_ = 0;
  OpTrace trace_;
  std::unordered_set<Node*> claimed_;
  std::map<std::string, at::Tensor> attention_inputs_;  ///< query, key, value of the layer at hand
};

/// Rows of the microbatch in which `tensor` ([s, b, …], [s·b, …] or [b, s]) is not finite.
std::vector<std::int64_t> Tracer::samples_of(const at::Tensor& tensor) const {
  if (tensor.dim() >= 2 && tensor.size(0) == sequence_ && tensor.size(1) == batch_) return bad_indices(tensor, 1);
  if (tensor.dim() >= 2 && tensor.size(0) == batch_ && tensor.size(1) == sequence_) return bad_indices(tensor, 0);
  if (tensor.dim() >= 1 && tensor.size(0) == sequence_ * batch_) return bad_indices(tensor.reshape({sequence_, batch_, -1}), 1);
  return {};
}

void Tracer::remember_attention(const std::string& op, const at::Tensor& output) {
  for (const char* name : {"query", "key", "value"}) {
    if (op.ends_with(std::string(".") + name)) attention_inputs_[name] = output.detach();
  }
}

void Tracer::blame(FirstBadOp bad) {
  trace_.first_bad = std::move(bad);
  place_ = stages_.place(step_);
}

bool Tracer::leave_to_first(const std::function<double(double)>& least) {
  const double first = least ? least(place_) : place_;
  if (place_ > first) trace_.first_bad.reset();
  return first != kNowhere;
}

void Tracer::blame_forward(const std::string& op, const at::Tensor& output) {
  FirstBadOp bad{.pass = FirstBadOp::Pass::forward, .op = op, .what = "output", .statistics = trace_.ops.back().output};
  bad.samples = samples_of(output);
  if (trace_.ops.size() - 1 == first_op_) {
    bad.begins_stage = stages_.stage(step_.chunk) > 0;
  } else {
    bad.input = trace_.ops[trace_.ops.size() - 2].op;
    bad.before = trace_.ops[trace_.ops.size() - 2].output;
  }
  if (op.ends_with(".core_attention") && attention_inputs_.size() == 3) {
    if (auto scores = non_finite_scores(attention_inputs_["query"], attention_inputs_["key"], model_.config())) {
      bad.detail = "scores";
      bad.what = "scores query·key of head " + std::to_string(scores->head);
      bad.statistics = scores->statistics;
      bad.samples = {scores->sample};
    }
  }
  blame(std::move(bad));
}

void Tracer::after_loss(const StepOutput& output) {
  trace_.loss_sum = output.loss_sum.item<double>();
  trace_.tokens = output.count.item<double>();
  const bool blames_loss = trace_.first_bad && trace_.first_bad->op == "loss";
  if (std::isfinite(trace_.loss_sum) || (trace_.first_bad && !blames_loss)) return;
  if (!trace_.first_bad) blame({.op = "loss"});
  FirstBadOp& bad = *trace_.first_bad;
  bad.what = is_finite(output.token_losses) ? "sum of the losses" : "loss of each token";
  bad.statistics = tensor_statistics(is_finite(output.token_losses) ? output.loss_sum : output.token_losses);
  bad.samples = samples_of(output.token_losses);
}

void Tracer::blame_node(const std::string& op, const std::string& node, const variable_list& of_inputs, const variable_list& of_outputs) {
  if (trace_.first_bad || !all_finite(of_outputs)) return;
  const auto blame_gradient = [&](const std::string& what, const at::Tensor& gradient) {
    FirstBadOp bad{.pass = FirstBadOp::Pass::backward, .op = op, .detail = node, .what = what, .statistics = tensor_statistics(gradient)};
    bad.samples = samples_of(gradient);
    for (const at::Tensor& reached : of_outputs) {
      if (reached.defined()) bad.before = tensor_statistics(reached);
    }
    blame(std::move(bad));
  };
  for (const at::Tensor& gradient : of_inputs) {
    if (!is_finite(gradient)) return blame_gradient("gradient of its input", gradient);
  }
  for (const Parameter* parameter : parameters_of(weights_, op)) {
    if (!is_finite(parameter->grad())) return blame_gradient("gradient of " + parameter->name(), parameter->grad());
  }
}

void Tracer::claim(Node* node, const std::string& op) {
  std::vector<Node*> pending{node};
  while (!pending.empty()) {
    Node* current = pending.back();
    pending.pop_back();
    if (current == nullptr || !claimed_.insert(current).second) continue;
    current->add_post_hook(
        std::make_unique<AfterNode>([this, op, name = current->name()](const variable_list& of_inputs, const variable_list& of_outputs) {
          blame_node(op, name.starts_with("torch::autograd::CppNode") ? "" : name, of_inputs, of_outputs);
        }));
    for (const auto& edge : current->next_edges()) pending.push_back(edge.function.get());
  }
}

void Tracer::after_backward() {
  if (trace_.first_bad) return;
  for (const Parameter* parameter : weights_.parameters()) {
    if (is_finite(parameter->grad())) continue;
    return blame({.pass = FirstBadOp::Pass::backward,
                  .op = parameter->name(),
                  .what = "gradient of " + parameter->name(),
                  .statistics = tensor_statistics(parameter->grad())});
  }
}

/// A microbatch forward through all stages, then backward.
Schedule there_and_back(const StagesOfRank& stages) {
  Schedule schedule{
      .name = "diagnosis", .num_ranks = stages.num_ranks, .num_chunks = stages.num_chunks, .num_microbatches = 1, .order = stages.order, .ranks = {}};
  std::vector<ScheduleStep> steps;
  const auto num_chunks = static_cast<std::int32_t>(stages.num_chunks);
  for (std::int32_t chunk = 0; chunk < num_chunks; ++chunk) steps.push_back({StepKind::forward, 0, chunk});
  for (std::int32_t chunk = num_chunks; chunk-- > 0;) steps.push_back({StepKind::backward, 0, chunk});
  schedule.ranks.assign(static_cast<std::size_t>(stages.num_ranks), steps);
  return with_messages(schedule, /*ahead=*/false);
}

double gradient_scale(const OpTrace& trace, const TraceOptions& options) {
  return options.gradient_factor / (options.per_token ? 1 : std::max(trace.tokens, 1.0));
}

/// What only the last stage knows.
void share_loss(OpTrace& trace, const Axis& pp, c10::Device device) {
  const std::vector<double> totals = sums({pp, device}, {trace.loss_sum, trace.tokens}, "diagnosis");
  trace.loss_sum = totals[0];
  trace.tokens = totals[1];
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

OpTrace trace_microbatch(LanguageModel& model, ParamStore& weights, const Microbatch& microbatch, const TraceOptions& options) {
  const Axis alone{"pp"};
  const Axis& pp = options.pp != nullptr ? *options.pp : alone;
  const StagesOfRank stages{options.order, pp.size, model.num_chunks(), pp.rank};
  Tracer tracer(model, weights, microbatch, stages);
  OpTrace& trace = tracer.trace();
  const at::AutoGradMode with_gradients(true);
  const UnitHooksScope hooked(model, tracer);
  for (const ParamBucket& bucket : weights.buckets()) bucket.grad.zero_();
  weights.zero_gradients();
  bool is_bad = false;
  const auto on_loss = [&](std::size_t /*microbatch*/, const StepOutput& output) {
    tracer.after_loss(output);
    return at::scalar_tensor(gradient_scale(trace, options), output.loss_sum.options());
  };
  const auto before_backward = [&] { return !(is_bad = tracer.leave_to_first(options.least)); };
  const std::vector<Microbatch> batch{microbatch};
  run_schedule(there_and_back(stages), {model, weights, pp},
               {.batch = batch, .on_loss = on_loss, .before_backward = before_backward, .listener = &tracer});
  share_loss(trace, pp, weights.device());
  trace.gradient_scale = gradient_scale(trace, options);
  if (is_bad) return trace;
  weights.finalize_local_gradients();
  if (!tracer.leave_to_first(options.least)) tracer.after_backward();
  return trace;
}

}  // namespace megatron
