#include "megatron/training/diagnosis/op_trace.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>

#include "megatron/training/diagnosis/attention_scores.h"

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

class Tracer : public UnitHooks {
 public:
  Tracer(const LanguageModel& model, ParamStore& weights, const Microbatch& microbatch) : model_(model), weights_(weights) {
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

  OpTrace& trace() { return trace_; }
  /// Blames the loss when every watched output was finite; `token_losses` [b, s] say whose it is.
  void after_loss(const StepOutput& output);
  /// Blames the sum of the gradients of a parameter when every node's own were finite.
  void after_backward();

 private:
  void remember_attention(const std::string& op, const at::Tensor& output);
  void blame_forward(const std::string& op, const at::Tensor& output);
  void blame_node(const std::string& op, const std::string& node, const variable_list& of_inputs, const variable_list& of_outputs);
  /// Names every node that leads to `node` and has no name yet: those are the nodes of `op`.
  void claim(Node* node, const std::string& op);
  std::vector<std::int64_t> samples_of(const at::Tensor& tensor) const;

  const LanguageModel& model_;
  ParamStore& weights_;
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

void Tracer::blame_forward(const std::string& op, const at::Tensor& output) {
  FirstBadOp bad{.pass = FirstBadOp::Pass::forward, .op = op, .what = "output", .statistics = trace_.ops.back().output};
  bad.samples = samples_of(output);
  if (trace_.ops.size() > 1) {
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
  trace_.first_bad = std::move(bad);
}

void Tracer::after_loss(const StepOutput& output) {
  trace_.loss_sum = output.loss_sum.item<double>();
  trace_.tokens = output.count.item<double>();
  const bool blames_loss = trace_.first_bad && trace_.first_bad->op == "loss";
  if (std::isfinite(trace_.loss_sum) || (trace_.first_bad && !blames_loss)) return;
  if (!trace_.first_bad) trace_.first_bad = FirstBadOp{.op = "loss"};
  FirstBadOp& bad = *trace_.first_bad;
  bad.what = is_finite(output.token_losses) ? "sum of the losses" : "loss of each token";
  bad.statistics = tensor_statistics(is_finite(output.token_losses) ? output.loss_sum : output.token_losses);
  bad.samples = samples_of(output.token_losses);
}

void Tracer::blame_node(const std::string& op, const std::string& node, const variable_list& of_inputs, const variable_list& of_outputs) {
  if (trace_.first_bad || !all_finite(of_outputs)) return;
  const auto blame = [&](const std::string& what, const at::Tensor& gradient) {
    trace_.first_bad =
        FirstBadOp{.pass = FirstBadOp::Pass::backward, .op = op, .detail = node, .what = what, .statistics = tensor_statistics(gradient)};
    trace_.first_bad->samples = samples_of(gradient);
    for (const at::Tensor& reached : of_outputs) {
      if (reached.defined()) trace_.first_bad->before = tensor_statistics(reached);
    }
  };
  for (const at::Tensor& gradient : of_inputs) {
    if (!is_finite(gradient)) return blame("gradient of its input", gradient);
  }
  for (const Parameter* parameter : parameters_of(weights_, op)) {
    if (!is_finite(parameter->grad())) return blame("gradient of " + parameter->name(), parameter->grad());
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
    trace_.first_bad = FirstBadOp{.pass = FirstBadOp::Pass::backward,
                                  .op = parameter->name(),
                                  .what = "gradient of " + parameter->name(),
                                  .statistics = tensor_statistics(parameter->grad())};
    return;
  }
}

void run_backward(Tracer& tracer, ParamStore& weights, const StepOutput& output, double scale) {
  for (const ParamBucket& bucket : weights.buckets()) bucket.grad.zero_();
  weights.begin_gradients();
  output.loss_sum.backward(at::scalar_tensor(scale, output.loss_sum.options()));
  weights.finish_local_gradients();
  tracer.after_backward();
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
  Tracer tracer(model, weights, microbatch);
  const at::AutoGradMode with_gradients(options.backward);
  const UnitHooksScope hooked(model, tracer);
  const StepOutput output = model.forward_step(microbatch, options.training);
  tracer.after_loss(output);
  OpTrace& trace = tracer.trace();
  trace.gradient_scale = options.gradient_factor / (options.per_token ? 1 : std::max(trace.tokens, 1.0));
  const bool is_bad = options.on_any_rank ? options.on_any_rank(trace.first_bad.has_value()) : trace.first_bad.has_value();
  if (!options.backward || is_bad) return trace;
  run_backward(tracer, weights, output, trace.gradient_scale);
  return trace;
}

}  // namespace megatron
