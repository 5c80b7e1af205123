// What cleaning removed, and why.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json_text.h"

namespace megatron {

struct CleaningReport {
  static constexpr std::size_t kMostExamples = 3;
  struct Removed {
    std::int64_t documents = 0;
    std::uint64_t bytes = 0;
    std::vector<std::string> examples;  ///< of the first ones: "file:line: start of the text"
    bool operator==(const Removed&) const = default;
  };

  std::int64_t documents = 0;              ///< examined
  std::uint64_t bytes = 0;                 ///< of their texts
  std::map<std::string, Removed> removed;  ///< by the name of the rule

  void add_removed(std::string_view rule, std::uint64_t text_bytes, const std::string& example);
  /// The sum over all rules.
  Removed total() const;
  bool operator==(const CleaningReport&) const = default;
};

JsonText to_json(const CleaningReport& report);

}  // namespace megatron
