// The rows of config.json: each key sets a member of a model, or has functions. One interpreter
// reads and writes them all.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/architecture.h"

namespace megatron {

/// The contents of a config.json.
struct HfConfig {
  TransformerConfig model = {};
  std::string model_type = {};
  /// Training members (dropout, init std) that the family sets, and from where, for the log.
  std::map<std::string, std::string> given_training_fields = {};
  std::vector<std::string> notes = {};  ///< remarks for the user
};

class ConfigReader;

/// A member that a key sets: a size, a number, a number or none, the first of a list, a boolean, an
/// activation.
using KeyMember =
    std::variant<std::int64_t TransformerConfig::*, std::int64_t MoeConfig::*,
                 std::int64_t MambaConfig::*, std::int64_t LinearAttentionConfig::*,
                 double TransformerConfig::*, std::optional<double> TransformerConfig::*,
                 std::optional<double> MoeConfig::*, std::vector<double> MoeConfig::*,
                 bool TransformerConfig::*, bool MoeConfig::*, bool LinearAttentionConfig::*,
                 Activation TransformerConfig::*>;

/// The numbers that a key may have, and the words for them.
struct NumberRange {
  bool (*contains)(double number) = nullptr;  ///< null: all numbers
  const char* words = "";
};
inline constexpr NumberRange kAtLeastZero{[](double x) { return x >= 0 && std::isfinite(x); },
                                          "it must be at least 0"},
    kAboveZero{[](double x) { return x > 0 && std::isfinite(x); }, "it must be above 0"},
    kFraction{[](double x) { return x >= 0 && x < 1; }, "it must be at least 0 and below 1"};

struct KeyMeaning {
  NumberRange range = {};                      ///< of a number
  bool is_required = false;                    ///< a number without a default
  bool zero_is_none = false;                   ///< of a number or none; null always is
  bool is_negated = false;                     ///< a boolean that is true where the key is false
  std::int64_t most = kWidest;                 ///< of a size
  std::int64_t MoeConfig::*most_in = nullptr;  ///< the member with the most
  std::string_view alias = {};                 ///< another spelling of a size, which must agree
  /// A size that this one must divide, and which it is where the key is null or has no default.
  std::int64_t TransformerConfig::*divides = nullptr;
};

/// One key of config.json. It sets a member, whose value in HfFamily::defaults an absent key
/// leaves; a size of 0 makes the key required. Where that does not do, functions read or write it.
struct KeyRow {
  using Read = std::function<void(const ConfigReader& config, HfConfig& result)>;
  /// Takes the model in canonical spelling (architecture.h).
  using Write = std::function<void(const TransformerConfig& model, Json& json)>;

  KeyRow(std::string name, KeyMember set, KeyMeaning how = {}, Write writes = {})
      : key(std::move(name)), member(set), meaning(how), write(std::move(writes)) {}
  KeyRow(std::string name, KeyMember set, Read reads)
      : key(std::move(name)), member(set), read(std::move(reads)) {}
  KeyRow(std::string name, Read reads, Write writes = {})
      : key(std::move(name)), read(std::move(reads)), write(std::move(writes)) {}

  std::string key;
  std::optional<KeyMember> member = {};
  KeyMeaning meaning = {};
  Read read = {};
  Write write = {};
};
using KeyRows = std::vector<KeyRow>;

/// The interpreter of rows.
void read_keys(const KeyRows& rows, const ConfigReader& config, HfConfig& result);
void write_keys(const KeyRows& rows, const TransformerConfig& model, Json& json);

// Rows that need code (special_keys.cpp): their defaults depend on other keys, or several keys make
// one setting.

/// Which keys of attention a configuration class has.
struct AttentionKeys {
  bool has_head_dim = false;  ///< a class without the key gets it only where the size differs
  /// The name in config.json itself of what rope_parameters calls partial_rotary_factor. "": the
  /// class has neither.
  std::string_view partial_rotary = {};
  /// The older name of the base of layers with a window, where rope_parameters has one set for
  /// these and one for layers with full attention. "": it has one set for all layers. The family's
  /// default is that of rotary_base_local.
  std::string_view local_base = {};
  KeyRows (*rotary)() = nullptr;                ///< returns further rows of the rotary parameters
  std::string_view rotary_base = "rope_theta";  ///< its name in config.json itself
  /// The size of a head is hidden_size / num_attention_heads, whatever head_dim says.
  bool divides_hidden_size = false;
  bool null_base_is_none = false;  ///< a base that is null stands for no positions
};
/// The heads, with rotary positions: num_attention_heads, num_key_value_heads, head_dim (0:
/// hidden_size / num_attention_heads), rope_parameters or rope_theta and rope_scaling.
KeyRows attention_keys(const AttentionKeys& keys);

/// Which layers have a sliding window. A class without `includes`, `period` and `rule` has no
/// layer_types, and all layers have one.
struct Windows {
  std::int64_t width = 4096;  ///< where sliding_window is absent; 0: none
  bool has_switch = false;    ///< the class has use_sliding_window, which is false by default
  /// Returns whether a layer has one where layer_types is absent, by the key max_window_layers.
  bool (*includes)(std::int64_t layer, std::int64_t max_window_layers) = nullptr;
  std::int64_t number = 28;          ///< max_window_layers where the key is absent
  std::int64_t period = 0;           ///< N: every N-th layer has none where layer_types is absent
  std::string_view period_key = {};  ///< the key that may give another N
  /// In place of both, returns 1 for each layer that has one where layer_types is absent, and 0 for
  /// the others.
  std::vector<std::int64_t> (*rule)(const ConfigReader& config,
                                    const TransformerConfig& model) = nullptr;

  bool has_layer_types() const { return includes != nullptr || period > 0 || rule != nullptr; }
};
KeyRow sliding_window(const Windows& windows);
/// no_rope_layers and no_rope_layer_interval (4 by default), which say which layers rotate.
KeyRow rope_layers();

/// The dropouts. Training takes that of the embedding from `residual`.
KeyRows dropout_keys(const std::string& attention, const std::string& residual,
                     const std::string& embedding);
/// A key that has one value in the family.
KeyRow constant(const std::string& key, const Json& value);
/// decoder_sparse_step and mlp_only_layers, which say which layers have experts.
KeyRow expert_layers();
KeyRow aux_loss();

/// Returns 0 for each layer whose number, counted from 1, is a multiple of `period`, and 1 for the
/// others.
std::vector<std::int64_t> all_but_multiples(std::int64_t period, std::int64_t num_layers);
/// Returns the size of a head. Throws UserError unless the heads divide the hidden size.
std::int64_t even_head_dim(const ConfigReader& config, const std::string& hidden,
                           const std::string& heads);

}  // namespace megatron
