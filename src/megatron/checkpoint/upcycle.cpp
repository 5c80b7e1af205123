#include "megatron/checkpoint/upcycle.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/checkpoint_writer.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/checkpoint/weight_reader.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/config/validate_settings.h"
#include "megatron/models/model_family.h"
#include "megatron/models/model_spec.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/init.h"

namespace megatron {
namespace {

/// Returns the sum of a token's probabilities while the router's logits are zero.
double first_sum_of_probabilities(const MoeConfig& moe) {
  const double factor = moe.router_topk_scaling_factor.value_or(1);
  if (moe.router_score_function == RouterScore::softmax) {
    return moe.router_pre_softmax ? factor * static_cast<double>(moe.router_topk) /
                                        static_cast<double>(moe.num_experts)
                                  : factor;
  }
  if (moe.router_topk > 1) return factor;  // the router normalizes them
  return factor *
         (moe.router_score_function == RouterScore::sigmoid ? 0.5 : std::sqrt(std::log(2)));
}

/// Returns the factor of both weights of an expert (He et al. 2024, §3.4). It scales the result by
/// the number of parts, and by what the probabilities lack.
double weight_scale(const TransformerConfig& model, std::int64_t granularity) {
  const double result_scale =
      static_cast<double>(granularity) / first_sum_of_probabilities(model.moe);
  const bool is_cubic = model.gated_linear_unit || model.activation == Activation::squared_relu;
  return std::pow(result_scale, is_cubic ? 1.0 / 3 : 1.0 / 2);
}

/// How the rows or columns of a tensor are divided: they are `runs` equal runs (gate | up), of
/// which each has `parts` parts.
struct Division {
  std::int64_t dim, runs, parts;
};

/// Returns part `index` of each run.
at::Tensor part_of(const at::Tensor& tensor, const Division& division, std::int64_t index) {
  const std::int64_t run = tensor.size(division.dim) / division.runs, length = run / division.parts;
  std::vector<at::Tensor> pieces;
  for (std::int64_t i = 0; i < division.runs; ++i)
    pieces.push_back(tensor.narrow(division.dim, i * run + index * length, length));
  return at::cat(pieces, division.dim);
}

/// A parameter of experts: its dense origin and how it is divided.
struct Expansion {
  std::string_view leaf, dense;
  int dim;          ///< the divided dimension of the dense tensor; −1: every expert has it whole
  bool has_halves;  ///< with a gated linear unit the rows are gate | up
};

constexpr std::array kExpansions{
    Expansion{"mlp.experts.linear_fc1.weight", "mlp.linear_fc1.weight", 0, true},
    Expansion{"mlp.experts.linear_fc1.bias", "mlp.linear_fc1.bias", 0, true},
    Expansion{"mlp.experts.linear_fc2.weight", "mlp.linear_fc2.weight", 1, false},
    Expansion{"mlp.experts.linear_fc2.bias", "mlp.linear_fc2.bias", -1, false},
};

/// Parameters that only change their names.
constexpr std::array kRenamed{
    std::pair{std::string_view("pre_mlp_layernorm.weight"),
              std::string_view("mlp.linear_fc1.layer_norm_weight")},
    std::pair{std::string_view("pre_mlp_layernorm.bias"),
              std::string_view("mlp.linear_fc1.layer_norm_bias")},
};

std::string with_ending(const std::string& name, std::string_view from, std::string_view to) {
  return name.substr(0, name.size() - from.size()) + std::string(to);
}

/// Reads the weights of the model with experts from those of the dense model.
class UpcycledReader : public WeightReader {
 public:
  UpcycledReader(const CheckpointSource& source, const UpcycleRequest& request)
      : dense_(open_weights(source)),
        config_(upcycled_architecture(source, request)),
        request_(request),
        model_(find_model_family(source.family, *request.families).make(config_, Rank{}, {})) {
    std::set<std::string> used;
    for (const Parameter* parameter : declared_parameters(*model_)) {
      add(*parameter, source.weight_type);
      if (const std::string name = origin(parameter->name()); !name.empty()) used.insert(name);
    }
    std::ranges::sort(weights_, {}, &WeightInfo::name);
    std::vector<std::string> unused;
    for (const WeightInfo& info : dense_->weights())
      if (!used.contains(info.name)) unused.push_back(info.name);
    require_no_names("the model with experts has no place for weights of " + source.folder.string(),
                     unused, "upcycle a dense model of the same family");
  }

  const std::vector<WeightInfo>& weights() const override { return weights_; }

  void copy_slice(const std::string& name, const TensorSlice& slice,
                  at::Tensor destination) override {
    if (name != last_name_) {
      last_ = whole(name);
      last_name_ = name;
    }
    destination.copy_(narrow_to(last_, slice.global_offset, slice.shape));
  }

 private:
  void add(const Parameter& parameter, at::ScalarType type) {
    parameters_.emplace(parameter.name(), &parameter);
    if (parameter.spec().kind == ParameterKind::state) return;  // starts at its initial value
    const std::string name = origin(parameter.name());
    const WeightInfo* info = dense_->find(name);
    weights_.push_back({.name = parameter.name(),
                        .shape = parameter.sharding().global_shape,
                        .type = info != nullptr ? info->type : type});
  }

  /// Returns the dense weight that a weight comes from, or "".
  std::string origin(const std::string& name) const {
    if (dense_->find(name) != nullptr) return name;
    if (const Expansion* expansion = find_expansion(name))
      return with_ending(name, expansion->leaf, expansion->dense);
    for (const auto& [ours, dense] : kRenamed)
      if (name.ends_with(ours)) return with_ending(name, ours, dense);
    return "";
  }

  static const Expansion* find_expansion(const std::string& name) {
    const auto found = std::ranges::find_if(
        kExpansions, [&](const Expansion& expansion) { return name.ends_with(expansion.leaf); });
    return found == kExpansions.end() ? nullptr : &*found;
  }

  at::Tensor whole(const std::string& name) {
    const std::string from = origin(name);
    if (from.empty()) return initial(*parameters_.at(name));
    const Expansion* expansion = from == name ? nullptr : find_expansion(name);
    return expansion == nullptr ? dense_->read(from) : expanded(dense_->read(from), *expansion);
  }

  at::Tensor expanded(const at::Tensor& dense, const Expansion& expansion) const {
    // The probabilities multiply the last bias as they are.
    const double scale = expansion.dim < 0 ? 1 / first_sum_of_probabilities(config_.moe)
                                           : weight_scale(config_, request_.granularity);
    const at::Tensor source = dense.to(at::kFloat).mul(scale);
    const std::int64_t runs = expansion.has_halves && config_.gated_linear_unit ? 2 : 1;
    const Division division{expansion.dim, runs, request_.granularity};
    std::vector<at::Tensor> experts;
    for (std::int64_t expert = 0; expert < config_.moe.num_experts; ++expert) {
      experts.push_back(
          expansion.dim < 0 ? source : part_of(source, division, expert % request_.granularity));
    }
    return at::stack(experts).to(dense.scalar_type());
  }

  /// Draws a weight. Experts that are parts of one MLP have the same row of the router.
  at::Tensor initial(const Parameter& parameter) const {
    at::Tensor value = at::empty(parameter.sharding().global_shape, at::kFloat);
    initialize_parameter(parameter, value, request_.seed);
    if (!parameter.name().ends_with("mlp.router.weight") || request_.granularity == 1) return value;
    return value.narrow(0, 0, value.size(0) / request_.granularity)
        .repeat_interleave(request_.granularity, 0);
  }

  std::unique_ptr<WeightReader> dense_;
  TransformerConfig config_;
  UpcycleRequest request_;
  std::unique_ptr<Model> model_;
  std::map<std::string, const Parameter*> parameters_;
  std::vector<WeightInfo> weights_;
  std::string last_name_;
  at::Tensor last_;
};

UserError refusal(const CheckpointSource& source, const std::string& got, const std::string& fix) {
  return UserError({"--moe-use-upcycling: " + source.folder.string(), got, fix});
}

}  // namespace

TransformerConfig upcycled_architecture(const CheckpointSource& source,
                                        const UpcycleRequest& request) {
  const std::int64_t width = source.model.ffn_hidden_size, parts = request.granularity,
                     given = request.experts.ffn_hidden_size;
  if (source.model.moe.num_experts > 0)
    throw refusal(source, "has experts already", "leave --moe-use-upcycling out");
  if (width % parts != 0 || request.experts.num_experts % parts != 0) {
    throw refusal(source,
                  "its MLP of width " + std::to_string(width) + " and " +
                      std::to_string(request.experts.num_experts) +
                      " experts are not both divisible by --moe-upcycling-granularity " +
                      std::to_string(parts),
                  "use a divisor of both, such as " +
                      std::to_string(std::gcd(width, request.experts.num_experts)));
  }
  if (given != 0 && given != width / parts) {
    throw refusal(source,
                  "an expert is 1/" + std::to_string(parts) + " of an MLP of width " +
                      std::to_string(width) + ", --moe-ffn-hidden-size is " + std::to_string(given),
                  "leave --moe-ffn-hidden-size out, or change --moe-upcycling-granularity");
  }
  if (request.experts.latent_size > 0)
    throw refusal(source, "a dense MLP takes the hidden size, experts with --moe-latent-size less",
                  "leave --moe-latent-size out");
  if (request.experts.apply_probs_on_input)
    throw refusal(source, "with probabilities on the input, no scale keeps the MLP's result",
                  "leave --moe-apply-probs-on-input out");
  TransformerConfig model = source.model;
  model.moe = request.experts;
  model.moe.use_upcycling = false;  // settings of the run, not of the model
  model.moe.upcycling_granularity = 1;
  model.moe.expert_placement_interval = 0;
  model.moe.ffn_hidden_size = width / parts;
  model.init_method_std = request.init_method_std;
  resolve(model);
  validate_model(model).throw_if_any();
  return model;
}

std::unique_ptr<WeightReader> open_upcycled(const CheckpointSource& source,
                                            const UpcycleRequest& request) {
  return std::make_unique<UpcycledReader>(source, request);
}

std::filesystem::path write_upcycled(const CheckpointSource& source, const UpcycleRequest& request,
                                     const std::filesystem::path& root) {
  CheckpointSource result = source;
  result.model = upcycled_architecture(source, request);
  result.model_type.clear();  // the family of an export is found by its mapping
  return write_release(*open_upcycled(source, request), result, root,
                       {.world = request.world, .device = request.device});
}

}  // namespace megatron
