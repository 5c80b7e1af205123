// Collects mistakes, so that everything wrong with a command line is reported at once.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {

/// A list of mistakes that becomes one UserError.
class Problems {
 public:
  void add(UserError::Parts parts) { list_.push_back(std::move(parts)); }
  void add(const Problems& other) {
    list_.insert(list_.end(), other.list_.begin(), other.list_.end());
  }
  bool empty() const { return list_.empty(); }
  const std::vector<UserError::Parts>& list() const { return list_; }
  /// Throws a single mistake as it is and several as a numbered list. Does nothing if there are
  /// none.
  void throw_if_any() const;

 private:
  std::vector<UserError::Parts> list_;
};

/// Returns the candidate with the smallest edit distance to `name` (insertion, deletion,
/// replacement, swap of neighbors), or "" if none is near.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// Returns whether `word` differs from `name` by one or two letters. Returns false for short words.
bool is_misspelt(std::string_view word, std::string_view name);

}  // namespace megatron
