// A model as data: stacks of layers, what makes the rows that each begins with, and the heads on
// the rows of the last. A family of models is a function from a configuration to this.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/activation_plan.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/model.h"
#include "megatron/nn/embedding.h"
#include "megatron/nn/head.h"
#include "megatron/nn/layer_spec.h"
#include "megatron/params/parameter.h"

namespace megatron {

class OffloadStore;
struct Rank;

/// Options that every family takes when it builds a model.
struct MakeModelOptions {
  std::int64_t vocab_pad_multiple = 128;
  /// Dtype of the weights (see ParamStore). A stage without weights needs it for its activations.
  c10::ScalarType dtype = c10::kFloat;
  /// Assigns layers to pipeline stages; rank.pp selects this rank's. Null means the whole model.
  const PipelineLayout* layout = nullptr;
  const ActivationPlan* activations = nullptr;  ///< null: layers keep their activations
  /// Receives what is offloaded of them; null: nothing is. Must outlive the model.
  OffloadStore* offload_store = nullptr;
};

/// What an input or a head is constructed with. `config` and `rank` must outlive the model.
struct PartArguments {
  Module* parent;
  const TransformerConfig& config;
  const Rank& rank;
  std::int64_t vocab_pad_multiple = 128;
  /// The ranks with an input or a head, and those with an input, of any stack. Those that declare a
  /// weight under the same name share it: tied embeddings, and embeddings.
  StageHolders ends = {}, embeddings = {};
};

/// Consecutive layers of the model under one name. Stacks of one name have the same layers.
struct StackSpec {
  std::string name = "decoder";  ///< path of its layers
  TransformerConfig config;      ///< of its layers, by their index in the stack
  TransformerLayerSpec layers;
  bool causal = true;            ///< attention reads no later positions
  std::int64_t num_streams = 1;  ///< n > 1: the residual is [s, b, n, h]
  std::function<std::unique_ptr<Input>(const PartArguments&)> input;
  /// The input is that of the first stack, for the tokens of this one.
  bool shares_input = false;
  /// Returns a microbatch as input, layers and heads of the stack read it: its own fields under the
  /// names of a language model's. Views of one microbatch may be views of each other. Empty: it is
  /// read as it is.
  std::function<Microbatch(const Microbatch&)> view = {};
  /// The layers of `config` that the stack consists of; by default all.
  std::int64_t first_layer = 0;
  std::optional<std::int64_t> num_layers = {};
  std::string publishes = {};  ///< key of what the stack returns; empty: its name
  /// Passes that want no loss leave the stack out. Only such stacks follow.
  bool only_for_loss = false;

  std::int64_t size() const { return num_layers.value_or(config.num_layers); }
  const std::string& published_name() const { return publishes.empty() ? name : publishes; }
};

/// A model computes its stacks one after another. What a stack returns is published under its name
/// (ForwardContext::published()) for the layers of later ones. Heads receive what the last stack
/// returns that is not only for the loss, and read what others return.
struct ModelSpec {
  std::vector<StackSpec> stacks;
  std::vector<std::function<std::unique_ptr<Head>(const PartArguments&)>> heads;
  Objective objective = {};
};

/// Declares the model, or the pipeline stages of it that `rank` holds. Bind the parameters, which
/// Module::visit reaches, to a ParamStore before use. `config` must be resolved and valid; it
/// describes the model as a whole.
std::unique_ptr<Model> make_model(ModelSpec spec, const TransformerConfig& config, const Rank& rank,
                                  const MakeModelOptions& options);

/// Returns who holds a weight that each stage declares for which `declares` returns true, as the
/// rank with index `pipeline_rank` on the pipeline axis sees it.
StageHolders stage_holders(const PipelineLayout& layout, std::int64_t pipeline_rank,
                           const std::function<bool(const StageLayers&)>& declares);

}  // namespace megatron
