// Regular expressions over UTF-8, compiled by PCRE2 with Unicode's classes and the JIT.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace megatron {

/// A half-open range of bytes.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// A compiled pattern of PCRE2. Immutable; threads may share it.
class Pattern {
 public:
  enum class Anchors { lines, text };  ///< where ^ and $ match

  /// Throws std::string with the reason when the pattern does not compile.
  Pattern(const std::string& pattern, Anchors anchors);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  /// Finds matches in texts. It owns scratch memory, so each thread needs its own.
  class Finder {
   public:
    explicit Finder(const Pattern& pattern);
    ~Finder();
    /// Returns the first match that begins at `start` or later in `text`, which is valid UTF-8.
    /// Throws std::string with the reason when the search exceeds its limits.
    std::optional<Span> find(std::string_view text, std::size_t start = 0);

   private:
    const Pattern& pattern_;
    struct Scratch;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace megatron
