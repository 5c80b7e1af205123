// The interface of a model: pipeline stages, the activations between them, and what a pass wants of
// the last one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "megatron/models/pass.h"
#include "megatron/nn/head.h"
#include "megatron/nn/microbatch.h"
#include "megatron/nn/module.h"

namespace megatron {

struct PipelineLayout;
struct Rank;
struct Settings;
struct TransformerConfig;
class MoeLayer;

/// A model, or the pipeline stages of one that this rank holds.
class Model : public Module {
 public:
  using Module::Module;
  virtual const TransformerConfig& config() const = 0;
  /// Returns the number of pipeline stages that this rank holds.
  virtual std::int64_t num_chunks() const { return 1; }
  /// Returns the number of residual streams that the last layers return.
  virtual std::int64_t num_streams() const { return 1; }
  /// Returns whether no token depends on later ones, so that texts can be continued: the same on
  /// every rank. The text of an encoder does not count.
  virtual bool is_causal() const { return true; }
  /// Returns whether layers attend to a text of its own that an encoder has seen (Pass::encoder).
  virtual bool has_encoder() const { return false; }
  /// Returns whether layers keep caches of their own (SequenceCache::of_layer()), here or on other
  /// ranks: the same on every rank.
  virtual bool keeps_states() const { return false; }
  /// Returns the modules that UnitHooks see, in the order of the forward pass: the embedding, each
  /// layer, the final norm. Weights outside of them (an output layer) form a unit of their own.
  virtual std::vector<Module*> units() { return {}; }
  /// Returns the specs of the activations that a chunk receives; empty on the first stage.
  virtual std::vector<ActivationSpec> input_specs(std::int64_t /*chunk*/,
                                                  const Pass& /*pass*/) const {
    return {};
  }
  /// Returns the specs of the activations that a chunk sends; empty on the last stage.
  virtual std::vector<ActivationSpec> output_specs(std::int64_t /*chunk*/,
                                                   const Pass& /*pass*/) const {
    return {};
  }
  /// Runs one stage of a pass: the last one returns what it wants, such as the loss of the heads
  /// (sum_of_heads()). `in` must match input_specs(). Collective over the model's tensor-parallel
  /// axis.
  virtual StageOutput forward_chunk(std::int64_t chunk, const Pass& pass,
                                    const Activations& in) = 0;
  /// Returns what training minimises, by default a language model's loss.
  const Objective& objective() const { return objective_; }
  /// Every rank must set the same.
  void set_objective(Objective objective) { objective_ = std::move(objective); }
  /// Returns the loss of one microbatch by objective(). The rank must hold the whole model.
  StepOutput forward_step(const Microbatch& microbatch, bool training);
  /// Returns what a pass wants other than the loss, without gradients, and advances its caches. The
  /// rank must hold the whole model; otherwise see pipeline/model_runner.h.
  at::Tensor infer(const Pass& pass);
  /// Returns the shape of what a pass wants other than the loss.
  std::vector<std::int64_t> result_shape(const Pass& pass) const;

 protected:
  friend class UnitHooksScope;
  UnitHooks* unit_hooks_ = nullptr;

 private:
  Objective objective_;
};

/// Returns this rank's layers with experts, in the order of the layers.
std::vector<MoeLayer*> moe_layers(Model& model);

/// Returns the first parameters of the units of `model`, for ParamStore::Options::unit_starts.
std::unordered_set<const Parameter*> unit_starts(Model& model);

/// What ParamStore::Options must know of the units: where they begin, for weights and gradients
/// that are in memory only while their unit is used, and which weights are offloaded.
struct UnitParameters {
  std::unordered_set<const Parameter*> starts = {};     ///< unit_starts()
  std::unordered_set<const Parameter*> offloaded = {};  ///< --cpu-offloading-weights
};

/// Returns empty sets when a run shards and offloads neither weights nor gradients.
UnitParameters unit_parameters(Model& model, const Settings& settings, const Rank& rank,
                               const PipelineLayout& layout);

/// A unit that UnitHooks see, or a module with weights outside of them (an output layer).
struct ModelUnit {
  std::string path;                        ///< "decoder.layers.3"
  std::optional<std::int64_t> layer = {};  ///< Module::layer_index()

  /// Returns "layer 3", or the last name of the path in words: "final layernorm".
  std::string title() const;
};

ModelUnit model_unit(const Module& module);
/// Returns the units of `model` in the order of the forward pass.
std::vector<ModelUnit> model_units(Model& model);
/// Returns the unit that the op or parameter of this name belongs to, or null.
const ModelUnit* find_unit(const std::vector<ModelUnit>& units, std::string_view name);

/// Installs hooks around the units of a model's forward passes during its lifetime. Hooks of an
/// enclosing scope are suspended meanwhile.
class UnitHooksScope {
 public:
  UnitHooksScope(Model& model, UnitHooks& hooks)
      : model_(model), previous_(std::exchange(model.unit_hooks_, &hooks)) {}
  UnitHooksScope(const UnitHooksScope&) = delete;
  UnitHooksScope& operator=(const UnitHooksScope&) = delete;
  ~UnitHooksScope() { model_.unit_hooks_ = previous_; }
  /// Returns the suspended hooks, which may be null.
  UnitHooks* enclosing() const { return previous_; }

 private:
  Model& model_;
  UnitHooks* previous_;
};

}  // namespace megatron
