// Collects startup warnings about things that change what the run computes. They are printed where
// they arise, hundreds of lines before the first step, and repeated right before the first step.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

class StartupWarnings {
 public:
  /// Prints "WARNING: <text>" to `out` and keeps it, unless the text is kept already.
  void add(std::string text, std::ostream& out);
  /// Keeps a warning that was already printed in another form.
  void keep(std::string text) { texts_.push_back(std::move(text)); }
  /// Prints all kept warnings.
  void repeat(std::ostream& out) const;
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
};

}  // namespace megatron
