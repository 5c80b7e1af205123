// A Hugging Face family is a value: the defaults of its configuration class, rows for the keys of
// config.json and rows for the tensors. Families stand in a list that is passed, and a program adds
// its own to a copy of hf_families().
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
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

/// A member that a key sets: a size, a number, a number or null, a boolean, an activation.
using KeyMember =
    std::variant<std::int64_t TransformerConfig::*, std::int64_t MoeConfig::*,
                 double TransformerConfig::*, std::optional<double> TransformerConfig::*,
                 bool TransformerConfig::*, bool MoeConfig::*, Activation TransformerConfig::*>;

struct KeyMeaning {
  enum class Range { any, above_zero, fraction };
  Range range = Range::any;      ///< of a number
  std::int64_t most = kWidest;   ///< of a size
  bool is_negated = false;       ///< the boolean is true where the key is false
  bool is_required = false;      ///< a number without a default
  std::string_view alias = {};   ///< another spelling of a size, which must not contradict
  std::string_view trains = {};  ///< the training member that the key sets, for the log
};

/// One key of config.json. It sets a member, whose value in HfFamily::defaults an absent key
/// leaves; a size of 0 makes the key required. Or a pair of functions reads and writes it.
struct KeyRow {
  using Read = std::function<void(const ConfigReader& config, HfConfig& result)>;
  /// Takes the model in canonical spelling (architecture.h).
  using Write = std::function<void(const TransformerConfig& model, Json& json)>;

  KeyRow(std::string name, KeyMember set, KeyMeaning how = {})
      : key(std::move(name)), member(set), meaning(how) {}
  KeyRow(std::string name, Read reads, Write writes = {})
      : key(std::move(name)), read(std::move(reads)), write(std::move(writes)) {}

  std::string key;
  KeyMember member = {};
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
};

/// In the order in which an export tries them.
using HfFamilies = std::vector<HfFamily>;

/// Returns the families that the program knows.
const HfFamilies& hf_families();
/// Returns their values of model_type.
std::span<const std::string_view> hf_model_types();
/// Returns null for an unknown model_type.
const HfFamily* find_hf_family(const HfFamilies& families, std::string_view model_type);

/// Joins the lists. A row takes the place of an earlier one of the same key.
KeyRows joined_keys(std::initializer_list<KeyRows> lists);
TensorRows joined_tensors(std::initializer_list<TensorRows> lists);
/// Returns the rows with "decoder.layers.{i}." before our names and `prefix` before theirs.
TensorRows in_layers(TensorRows rows, const std::string& prefix = "model.layers.{i}.");

}  // namespace megatron
