// A Hugging Face family is a value: the defaults of its configuration class, rows for the keys of
// config.json and rows for the tensors.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/models/hf/key_rows.h"

namespace megatron {

/// Consecutive blocks of a Sharding, each collected over all repeats, one after the other. None
/// means the whole tensor as it is.
struct Blocks {
  std::size_t first = 0, count = 0;
};

/// One Hugging Face tensor: a part of one of our parameters. {i} in a name stands for the number of
/// the layer, {e} for each expert, {w} for "weight" or "bias", and {m} for the number that layer
/// {i} of multi-token prediction has among all layers. Where one of their layers is two of ours,
/// {i/2} there is {2i} and {2i+1} here.
struct TensorRow {
  std::string ours = {}, theirs = {};
  Blocks blocks = {};
  bool is_transposed = false;  ///< of its last two dimensions
  bool is_row = false;         ///< a vector, of which theirs is a matrix with one row
  /// A folder that has the tensor is read from it, and not from the other rows of the parameter;
  /// exports leave it out.
  bool is_alternative = false;
  bool is_interleaved = false;  ///< the blocks alternate along its last dimension
  /// Returns how many runs the rows of the tensor consist of. Each has an equal part of every
  /// block, such as the rows of one head. Null: there is one run.
  std::int64_t (*num_runs)(const TransformerConfig& model) = nullptr;
  /// The tensor repeats the parameter, in each layer {m} if the name has that. Reading it changes
  /// nothing.
  bool is_copy = false;
  std::optional<bool> is_gated = {};  ///< only of models whose MLP is gated, or is not
};
using TensorRows = std::vector<TensorRow>;

struct HfFamily {
  std::string model_type = {};    ///< as in config.json
  std::string architecture = {};  ///< the class of transformers
  TransformerConfig defaults = {};
  KeyRows keys = {};  ///< read and written in this order
  TensorRows tensors = {};
  std::string prefix = "model.";                ///< of tensor names; base models omit it
  std::string other_prefix = {};                ///< that some folders have instead; "": none
  std::string output_layer = "lm_head.weight";  ///< repeats the embedding where they are tied
  std::vector<std::string> buffers = {};  ///< ends of the names of tensors that are no weights
  std::string ignored = {};       ///< begins the names of tensors that transformers ignores as well
  bool needs_even_heads = false;  ///< refuses a hidden size that heads do not divide
  std::string network = "gpt";    ///< the ModelFamily

  void add_keys(const KeyRows& rows) { keys.insert(keys.end(), rows.begin(), rows.end()); }
  void add_tensors(const TensorRows& rows) {
    tensors.insert(tensors.end(), rows.begin(), rows.end());
  }
  /// Adds the rows with `ours` before our names and `layer` before theirs.
  void add_layer_tensors(TensorRows rows, const std::string& layer = "model.layers.{i}.",
                         const std::string& ours = "decoder.layers.{i}.");
};

/// Returns the families that the program knows, in the order in which an export tries them.
const std::vector<HfFamily>& hf_families();
/// Returns null for an unknown model_type.
const HfFamily* find_hf_family(std::string_view model_type);

}  // namespace megatron
