// AdamW and SGD with momentum over the parameters of a store: one fused pass over gradients, weights and state.
#include "megatron/optimizer/optimizer.h"

#include <ATen/ops/zeros.h>

#include <cmath>

#include "kernels/cpu/optimizer_kernels.h"
#include "megatron/base/error.h"
#include "megatron/optimizer/chunks.h"
#include "megatron/optimizer/cpu_tensors.h"
#include "megatron/optimizer/gradient_summary.h"

namespace megatron {
namespace {

bool is_decayed(const ParameterTags& tags, const OptimizerConfig& config) { return tags.qk_norm ? config.apply_wd_to_qk_layernorm : !tags.no_decay; }

/// One zero tensor per parameter, all in one allocation.
std::vector<at::Tensor> make_state(const std::vector<Parameter*>& parameters) {
  constexpr std::int64_t kAlignment = 16;
  std::vector<std::int64_t> offsets;
  std::int64_t size = 0;
  for (const Parameter* parameter : parameters) {
    offsets.push_back(size);
    size += (parameter->value().numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
  std::vector<at::Tensor> state;
  if (parameters.empty()) return state;
  const at::Tensor flat = at::zeros({size}, parameters.front()->value().options());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& value = parameters[i]->value();
    state.push_back(flat.narrow(0, offsets[i], value.numel()).view(value.sizes()));
  }
  return state;
}

/// What both rules share: the check, the norm, the clip, the walk over chunks and the books.
class ChunkedOptimizer : public Optimizer {
 public:
  ChunkedOptimizer(const OptimizerConfig& config, ParamStore& store)
      : config_(config), parameters_(store.parameters()), chunks_(make_chunks(parameters_)) {}

  StepResult step(const StepOptions& options) final {
    GradientSummary summary = summarize_gradients(parameters_, chunks_, options.count_zeros);
    StepResult result{.applied = summary.non_finite_parameter.empty(),
                      .grad_norm = summary.norm,
                      .num_zeros = summary.num_zeros,
                      .non_finite_parameter = std::move(summary.non_finite_parameter)};
    if (!result.applied) return result;
    ++num_steps_;
    update(options, clip_factor(result.grad_norm, config_.clip_grad));
    return result;
  }

  std::int64_t num_steps() const final { return num_steps_; }
  void set_num_steps(std::int64_t steps) final { num_steps_ = steps; }

 protected:
  virtual void update(const StepOptions& options, double grad_scale) = 0;

  /// Calls `apply(chunk, parameter, weight pointer, gradient pointer)` for every chunk, in parallel.
  template <class Apply>
  void for_each_chunk(const Apply& apply) {
    for_each_parallel(chunks_.size(), [&](std::size_t i) {
      const Chunk& chunk = chunks_[i];
      const Parameter& parameter = *parameters_[chunk.parameter];
      with_scalar_type(parameter.value(), [&]<class T>() {
        apply(chunk, parameter, elements<T>(parameter.value()) + chunk.begin, elements<T>(parameter.grad()) + chunk.begin);
      });
    });
  }

  void visit_tensors(std::vector<at::Tensor>& tensors, const char* name,
                     const std::function<void(const Parameter&, const std::string&, at::Tensor&)>& visitor) {
    for (std::size_t i = 0; i < tensors.size(); ++i) visitor(*parameters_[i], name, tensors[i]);
  }

  OptimizerConfig config_;
  std::vector<Parameter*> parameters_;
  std::vector<Chunk> chunks_;
  std::int64_t num_steps_ = 0;
};

class Adamw final : public ChunkedOptimizer {
 public:
  Adamw(const OptimizerConfig& config, ParamStore& store)
      : ChunkedOptimizer(config, store), exp_avg_(make_state(parameters_)), exp_avg_sq_(make_state(parameters_)) {}

  void visit_state(const std::function<void(const Parameter&, const std::string&, at::Tensor&)>& visitor) override {
    visit_tensors(exp_avg_, "exp_avg", visitor);
    visit_tensors(exp_avg_sq_, "exp_avg_sq", visitor);
  }

 private:
  void update(const StepOptions& options, double grad_scale) override {
    const double steps = static_cast<double>(num_steps_);
    kernels::AdamwCoefficients plain{.grad_scale = grad_scale,
                                     .beta1 = config_.adam_beta1,
                                     .beta2 = config_.adam_beta2,
                                     .eps = config_.adam_eps,
                                     .step_size = options.lr / (1 - std::pow(config_.adam_beta1, steps)),
                                     .inverse_root = 1 / std::sqrt(1 - std::pow(config_.adam_beta2, steps))};
    kernels::AdamwCoefficients decayed = plain;
    decayed.decay = options.lr * options.weight_decay;
    for_each_chunk([&]<class T>(const Chunk& chunk, const Parameter& parameter, T* weight, const T* grad) {
      T* exp_avg = elements<T>(exp_avg_[chunk.parameter]) + chunk.begin;
      T* exp_avg_sq = elements<T>(exp_avg_sq_[chunk.parameter]) + chunk.begin;
      kernels::adamw(weight, grad, exp_avg, exp_avg_sq, chunk.count, is_decayed(parameter.spec().tags, config_) ? decayed : plain);
    });
  }

  std::vector<at::Tensor> exp_avg_, exp_avg_sq_;
};

class Sgd final : public ChunkedOptimizer {
 public:
  Sgd(const OptimizerConfig& config, ParamStore& store) : ChunkedOptimizer(config, store) {
    if (config.sgd_momentum != 0) momentum_buffer_ = make_state(parameters_);
  }

  void visit_state(const std::function<void(const Parameter&, const std::string&, at::Tensor&)>& visitor) override {
    visit_tensors(momentum_buffer_, "momentum_buffer", visitor);
  }

 private:
  void update(const StepOptions& options, double grad_scale) override {
    const kernels::SgdCoefficients plain{.grad_scale = grad_scale, .momentum = config_.sgd_momentum, .lr = options.lr};
    kernels::SgdCoefficients decayed = plain;
    decayed.weight_decay = options.weight_decay;
    for_each_chunk([&]<class T>(const Chunk& chunk, const Parameter& parameter, T* weight, const T* grad) {
      T* momentum = momentum_buffer_.empty() ? nullptr : elements<T>(momentum_buffer_[chunk.parameter]) + chunk.begin;
      kernels::sgd(weight, grad, momentum, chunk.count, is_decayed(parameter.spec().tags, config_) ? decayed : plain);
    });
  }

  std::vector<at::Tensor> momentum_buffer_;
};

void require(bool condition, const char* what, const std::string& got, const char* fix) {
  if (!condition) throw UserError({what, got, fix});
}

void check(const OptimizerConfig& config) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  require(is_beta(config.adam_beta1), "--adam-beta1 must lie in [0, 1)", std::to_string(config.adam_beta1), "0.9 is usual");
  require(is_beta(config.adam_beta2), "--adam-beta2 must lie in [0, 1)", std::to_string(config.adam_beta2), "0.999 or 0.95 are usual");
  require(config.adam_eps >= 0, "--adam-eps must not be negative", std::to_string(config.adam_eps), "1e-8 is usual");
  require(config.sgd_momentum >= 0, "--sgd-momentum must not be negative", std::to_string(config.sgd_momentum), "0.9 is usual");
  require(config.clip_grad >= 0, "--clip-grad must not be negative", std::to_string(config.clip_grad), "0 turns clipping off");
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, ParamStore& store) {
  check(config);
  if (config.optimizer == "adam") return std::make_unique<Adamw>(config, store);
  if (config.optimizer == "sgd") return std::make_unique<Sgd>(config, store);
  throw UserError({"--optimizer", config.optimizer, "choose adam or sgd"});
}

}  // namespace megatron
