// A Hugging Face family is a value: the defaults of its configuration class, rows for the keys of
// config.json and rows for the tensors. Families stand in a list that is passed, and a program adds
// its own to a copy of hf_families().
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/architecture.h"
#include "megatron/models/hf/tensor_part.h"

namespace megatron {

class ConfigReader;
struct HfConfig;

/// A member that a key sets: a size, a number, a number or none, the first of a list, a boolean, an
/// activation.
using KeyMember =
    std::variant<std::int64_t TransformerConfig::*, std::int64_t MoeConfig::*,
                 double TransformerConfig::*, std::optional<double> TransformerConfig::*,
                 std::optional<double> MoeConfig::*, std::vector<double> MoeConfig::*,
                 bool TransformerConfig::*, bool MoeConfig::*, Activation TransformerConfig::*>;

struct KeyMeaning {
  enum class Range { any, at_least_zero, above_zero, fraction };
  Range range = Range::any;                    ///< of a number
  bool is_required = false;                    ///< a number without a default
  bool zero_is_none = false;                   ///< of a number or none; else null is none
  bool is_negated = false;                     ///< a boolean that is true where the key is false
  std::int64_t most = kWidest;                 ///< of a size
  std::int64_t MoeConfig::*most_in = nullptr;  ///< the member with the most
  std::string_view alias = {};                 ///< another spelling of a size, which must agree
  std::string_view trains = {};  ///< the training member that the key sets, for the log
};

/// One key of config.json. It sets a member, whose value in HfFamily::defaults an absent key
/// leaves; a size of 0 makes the key required. Where that does not do, functions read or write it.
struct KeyRow {
  using Read = std::function<void(const ConfigReader& config, HfConfig& result)>;
  /// Takes the model in canonical spelling (architecture.h).
  using Write = std::function<void(const TransformerConfig& model, Json& json)>;

  KeyRow(std::string name, KeyMember set, KeyMeaning how = {}, Write writes = {})
      : key(std::move(name)), member(set), meaning(how), write(std::move(writes)) {}
  KeyRow(std::string name, Read reads, Write writes = {})
      : key(std::move(name)), read(std::move(reads)), write(std::move(writes)) {}

  std::string key;
  std::optional<KeyMember> member = {};
  KeyMeaning meaning = {};
  Read read = {};
  Write write = {};
};
using KeyRows = std::vector<KeyRow>;

/// One Hugging Face tensor: a part of one of our parameters. {i} in a name stands for the number of
/// the layer, {e} for each expert, {w} for "weight" or "bias".
struct TensorRow {
  std::string ours = {}, theirs = {};
  Blocks blocks = {};
  bool is_transposed = false;
  /// A folder that has the tensor is read from it, and not from the other rows of the parameter;
  /// exports leave it out.
  bool is_alternative = false;
};
using TensorRows = std::vector<TensorRow>;

struct HfFamily {
  std::string model_type = {};    ///< as in config.json
  std::string architecture = {};  ///< the class of transformers
  TransformerConfig defaults = {};
  KeyRows keys = {};  ///< read and written in this order
  TensorRows tensors = {};
  std::string prefix = "model.";          ///< of tensor names; base models omit it
  std::vector<std::string> buffers = {};  ///< ends of the names of tensors that are no weights
  bool needs_even_heads = false;          ///< refuses a hidden size that heads do not divide
  std::string network = "gpt";            ///< the ModelFamily

  void add_keys(const KeyRows& rows) { keys.insert(keys.end(), rows.begin(), rows.end()); }
  void add_tensors(const TensorRows& rows) {
    tensors.insert(tensors.end(), rows.begin(), rows.end());
  }
};

/// In the order in which an export tries them.
using HfFamilies = std::vector<HfFamily>;

/// Returns the families that the program knows.
const HfFamilies& hf_families();
/// Returns null for an unknown model_type.
const HfFamily* find_hf_family(const HfFamilies& families, std::string_view model_type);

/// Returns the rows with "decoder.layers.{i}." before our names and `prefix` before theirs.
TensorRows in_layers(TensorRows rows, const std::string& prefix = "model.layers.{i}.");

}  // namespace megatron
