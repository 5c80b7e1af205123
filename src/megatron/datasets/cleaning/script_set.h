// The characters of Unicode scripts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// A set of scripts. Immutable; threads may share it.
class ScriptSet {
 public:
  /// Takes names of Unicode scripts, as "Latin" or "Cyrillic". Throws a UserError for others.
  explicit ScriptSet(const std::vector<std::string>& names);
  /// Returns the share of letters that are of these scripts; 1 for a text without letters.
  double letter_ratio(std::string_view text) const;

 private:
  std::vector<bool> contains_;  ///< by code point
};

}  // namespace megatron
