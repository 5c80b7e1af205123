// Mistakes collected instead of thrown one by one: everything wrong with a command line is shown
// together.
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
  /// Throws the one mistake as it is, or several as a numbered list; does nothing when there are
  /// none.
  void throw_if_any() const;

 private:
  std::vector<UserError::Parts> list_;
};

/// The candidate closest to `name` in edit distance (insert, delete, replace, swap of neighbours),
/// or "" when none is near.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// Whether `word` is `name` but for one or two letters. Short words say too little to tell.
bool is_misspelt(std::string_view word, std::string_view name);

}  // namespace megatron
