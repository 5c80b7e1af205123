// Regular expressions of tokenizers over UTF-8, with Unicode 16 classes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/pattern.h"

namespace megatron {

/// The program whose regular expressions a pattern follows.
enum class RegexDialect {
  oniguruma,  ///< of tokenizer.json: Ruby's, where ^ and $ match at lines
  rust        ///< of tiktoken: fancy-regex, where ^ and $ match at the ends of the text
};

/// A compiled pattern. Immutable; threads may share it.
class Regex {
 public:
  /// Throws a UserError when the pattern does not compile or uses unsupported syntax. `source`
  /// names file and field.
  Regex(std::string pattern, const std::string& source,
        RegexDialect dialect = RegexDialect::oniguruma);

  /// Finds the matches in a text. It owns scratch memory, so each thread needs its own; it can be
  /// reused for many texts.
  class Finder {
   public:
    explicit Finder(const Regex& regex) : regex_(regex), finder_(regex.compiled_) {}
    /// Appends the matches in `text` from left to right, offset by `base`. `text` is valid UTF-8
    /// that replace_unassigned_characters() has processed.
    void find_all(std::string_view text, std::size_t base, std::vector<Span>& matches);

   private:
    std::optional<Span> search(std::string_view text, std::size_t start);
    const Regex& regex_;
    Pattern::Finder finder_;
  };

 private:
  std::string pattern_;
  Pattern compiled_;
};

/// Returns the Oniguruma pattern that matches `text` literally.
std::string escape_regex(std::string_view text);

}  // namespace megatron
