// Warnings of a start that change what the run computes. They are printed where they arise,
// hundreds of lines before the first step, and once more right before it.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

class StartupWarnings {
 public:
  /// Prints "WARNING: <text>" to `out` and keeps it.
  void add(std::string text, std::ostream& out);
  /// Keeps what was printed in other words.
  void keep(std::string text) { texts_.push_back(std::move(text)); }
  /// Prints all that was kept.
  void repeat(std::ostream& out) const;
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
};

}  // namespace megatron
