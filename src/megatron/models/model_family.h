// The registry of model families: what setup, checkpoints, inference and planner must know about a
// network in order to build it. They look a family up and do not name one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "megatron/models/language_model.h"
#include "megatron/models/make_model_options.h"
#include "megatron/models/model_cost.h"

namespace megatron {

struct Rank;
struct TransformerConfig;
enum class SampleKind;

struct ModelFamily {
  std::string_view name;   ///< as in `megatron pretrain <name>`
  std::string_view title;  ///< as Megatron's log lines spell it
  /// Declares the model, or the pipeline stages of it that `rank` holds. `config` must be resolved
  /// and valid.
  std::unique_ptr<LanguageModel> (*make)(const TransformerConfig& config, const Rank& rank,
                                         const MakeModelOptions& options);
  /// Returns the dimensions that the formulas for operations and memory use.
  ModelDimensions (*dimensions)(const TransformerConfig& config, std::int64_t padded_vocab_size);
  /// The values of model_type in Hugging Face's config.json that are networks of this family, in
  /// the order in which an export tries them. models/hf/ maps their configurations and weights.
  std::span<const std::string_view> hf_model_types;
  SampleKind sample_kind = {};  ///< what it trains on; gpt by default
};

/// Returns all families, in the order of kModelFamilyNames.
std::span<const ModelFamily> model_families();

/// Returns the family that `megatron pretrain <name>` trains. UserError for an unknown name.
const ModelFamily& find_model_family(std::string_view name);

/// Returns the family of weights with this Hugging Face model_type. Weights that were never in a
/// Hugging Face folder have the type "" and are of the first family. UserError for an unknown type.
const ModelFamily& family_of_model_type(std::string_view model_type);

}  // namespace megatron
