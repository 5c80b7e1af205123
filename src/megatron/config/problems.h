// Collects mistakes, so that everything wrong with a command line is reported at once.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {

/// Remarks on flags that are accepted, such as "without effect: …", with the flags of each.
using Notes = std::map<std::string, std::vector<std::string>>;

/// Adds the flags of `more` that `all` does not have.
void add_notes(const Notes& more, Notes& all);

/// A list of mistakes that becomes one UserError, and notes on flags that are accepted.
class Problems {
 public:
  void add(UserError::Parts parts) { list_.push_back(std::move(parts)); }
  void add(const Problems& other) {
    list_.insert(list_.end(), other.list_.begin(), other.list_.end());
    add_notes(other.notes_, notes_);
  }
  /// Adds a remark on a flag that is accepted.
  void note(const std::string& flag, const std::string& remark) {
    add_notes(Notes{{remark, {flag}}}, notes_);
  }
  const Notes& notes() const { return notes_; }
  /// Returns whether there is no mistake.
  bool empty() const { return list_.empty(); }
  const std::vector<UserError::Parts>& list() const { return list_; }
  /// Throws a single mistake as it is and several as a numbered list. Does nothing if there are
  /// none.
  void throw_if_any() const;

 private:
  std::vector<UserError::Parts> list_;
  Notes notes_;
};

/// Returns the candidate with the smallest edit distance to `name` (insertion, deletion,
/// replacement, swap of neighbors), or "" if none is near.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// Returns whether `word` differs from `name` by one or two letters. Returns false for short words.
bool is_misspelt(std::string_view word, std::string_view name);

}  // namespace megatron
