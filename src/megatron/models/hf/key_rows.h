// The rows of config.json: each key sets a member of a model, or has functions. One interpreter
// reads and writes them all.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "megatron/base/json.h"
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

/// Reads the fields of one JSON object. Absent and null are equivalent, and every error names the
/// file and the field.
class ConfigReader {
 public:
  ConfigReader(const Json& object, std::string source, const ConfigReader* outer = nullptr);

  std::string source() const { return object_.place(); }
  /// Returns null when the field is absent or null.
  const Json* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }
  /// Returns whether the field is there and null.
  bool is_null(const std::string& key) const;

  /// The typed accessors throw UserError when the field has another type, or is absent and has no
  /// default.
  std::int64_t integer(const std::string& key, std::int64_t default_value) const {
    return has(key) ? object_[key].integer() : default_value;
  }
  double number(const std::string& key, std::optional<double> default_value = {}) const {
    return has(key) || !default_value ? object_[key].number() : *default_value;
  }
  bool boolean(const std::string& key, bool default_value) const {
    return has(key) ? object_[key].boolean() : default_value;
  }
  std::string text(const std::string& key, const std::string& default_value) const {
    return has(key) ? object_[key].text() : default_value;
  }
  /// Returns a size, which must be between 1 and `most`. A default of 0 means none.
  std::int64_t size(const std::string& key, std::int64_t most = kWidest,
                    std::int64_t default_value = 0) const;
  /// Returns the object below `key`, or an empty one when it is absent. This one must outlive it.
  ConfigReader section(const std::string& key) const;
  /// Returns this object if it has the field, else the object around it.
  const ConfigReader& with(const std::string& key) const { return has(key) ? *this : *outer_; }
  const ConfigReader& outer() const { return *outer_; }
  /// Returns the fields that nobody asked for: "a, b"; "" when there are none.
  std::string unread() const;

  /// Throws UserError: the field's value is not supported. `fix` names the supported values.
  [[noreturn]] void unsupported(const std::string& key, const std::string& fix) const;

 private:
  JsonCursor object_;
  const ConfigReader* outer_;           ///< null: config.json itself
  mutable std::set<std::string> read_;  ///< the fields that were asked for
};

/// A member that a key sets: a size, a number, a number or none, the first of a list, a boolean, an
/// activation.
using KeyMember =
    std::variant<std::int64_t TransformerConfig::*, std::int64_t MoeConfig::*,
                 double TransformerConfig::*, std::optional<double> TransformerConfig::*,
                 std::optional<double> MoeConfig::*, std::vector<double> MoeConfig::*,
                 bool TransformerConfig::*, bool MoeConfig::*, Activation TransformerConfig::*>;

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

/// The heads, with rotary positions: num_attention_heads, num_key_value_heads, head_dim (0:
/// hidden_size / num_attention_heads; a configuration class without the key writes it only where
/// the size differs), rope_parameters or rope_theta and rope_scaling.
KeyRows attention_keys(bool writes_head_dim);

/// Which layers have a sliding window.
struct Windows {
  std::int64_t width = 4096;  ///< where sliding_window is absent; 0: none
  bool has_switch = false;    ///< the class has use_sliding_window, which is false by default
  /// Returns whether a layer has one where layer_types is absent. Null: all layers have, and the
  /// class has neither layer_types nor max_window_layers.
  bool (*includes)(std::int64_t layer, std::int64_t max_window_layers) = nullptr;
};
KeyRow sliding_window(const Windows& windows);

/// The dropouts. Training takes that of the embedding from `residual`.
KeyRows dropout_keys(const std::string& attention, const std::string& residual,
                     const std::string& embedding);
/// A key that has one value in the family.
KeyRow constant(const std::string& key, const Json& value);
/// decoder_sparse_step and mlp_only_layers, which say which layers have experts.
KeyRow expert_layers();
KeyRow aux_loss();

/// Returns the size of a head. Throws UserError unless the heads divide the hidden size.
std::int64_t even_head_dim(const ConfigReader& config, const std::string& hidden,
                           const std::string& heads);

}  // namespace megatron
