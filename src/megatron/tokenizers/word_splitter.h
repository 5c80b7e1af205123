// Splits text into the words that byte-level BPE encodes one by one. The patterns of published
// tokenizers run as hand-written scanners, all others as regular expressions.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "megatron/tokenizers/regex.h"

namespace megatron {

/// Immutable and thread-safe.
class WordSplitter {
 public:
  /// Receives the next words in order.
  using Sink = std::function<void(std::span<const Span>)>;

  /// Compiles `pattern`. `source` names file and field in errors.
  WordSplitter(const std::string& pattern, RegexDialect dialect, const std::string& source);

  /// Passes the matches in `text`, which is valid UTF-8, to `sink`, some at a time. Text between
  /// the matches belongs to no word; scanners leave none.
  void split(std::string_view text, const Sink& sink) const;

  /// Returns whether the pattern has a hand-written scanner.
  bool is_scanner() const { return scan_ != nullptr; }

 private:
  using Scan = void (*)(std::string_view text, const Sink& sink);
  static Scan find_scan(std::string_view pattern, RegexDialect dialect);

  Scan scan_ = nullptr;
  std::optional<Regex> regex_;
};

}  // namespace megatron
