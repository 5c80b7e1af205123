// The registry of model families: what setup, checkpoints, inference and planner must know about a
// network in order to build it. They look a family up and do not name one.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/models/model_cost.h"

namespace megatron {

class Model;
struct MakeModelOptions;
struct Microbatch;
struct ModelSpec;
struct Rank;
struct TransformerConfig;
enum class SampleKind;

struct ModelFamily {
  std::string name;   ///< as in `megatron pretrain <name>`, and in manifests
  std::string title;  ///< as Megatron's log lines spell it
  std::function<ModelSpec(const TransformerConfig& config)> spec;
  /// Returns the dimensions that the formulas for operations and memory use.
  std::function<ModelDimensions(const TransformerConfig& config, std::int64_t padded_vocab_size)>
      dimensions = model_dimensions;
  SampleKind sample_kind = {};  ///< the samples that it trains on: gpt
  /// Adds the fields that the model reads besides GPT's to a batch that is made up for measuring.
  std::function<void(Microbatch& microbatch)> add_fields = {};

  /// Declares the model as make_model() does.
  std::unique_ptr<Model> make(const TransformerConfig& config, const Rank& rank,
                              const MakeModelOptions& options) const;
};

/// The families of a program. Families of its own stand beside those of this library.
class ModelFamilies {
 public:
  /// Makes the families of this library, in the order of kModelFamilyNames.
  ModelFamilies();
  /// Adds a family with a new name.
  void add(ModelFamily family);
  const std::list<ModelFamily>& all() const { return families_; }
  std::vector<std::string> names() const;

 private:
  std::list<ModelFamily> families_;  ///< plans refer to them
};

/// Returns the families of a program that adds none.
const ModelFamilies& library_families();

/// Returns the family that `megatron pretrain <name>` trains. UserError for an unknown name.
const ModelFamily& find_model_family(std::string_view name,
                                     const ModelFamilies& families = library_families());

/// Returns the family of weights with this Hugging Face model_type. Weights that were never in a
/// Hugging Face folder have the type "" and are of the first family. UserError for an unknown type.
const ModelFamily& family_of_model_type(std::string_view model_type);

}  // namespace megatron
