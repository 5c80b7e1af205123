// Regular expressions over UTF-8 by PCRE2 (JIT), written in Oniguruma's Ruby dialect as
// tokenizer.json files are, with Unicode 16 classes.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// A half-open stretch of bytes.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// A compiled pattern: immutable, shared by threads.
class Regex {
 public:
  /// `source` names file and field in the UserError for a pattern that does not compile or uses
  /// syntax we do not translate.
  Regex(std::string pattern, const std::string& source);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// The matches in one text from left to right. Holds scratch memory: one per thread, reusable
  /// over many texts.
  class Finder {
   public:
    explicit Finder(const Regex& regex);
    ~Finder();
    /// Appends the matches in `text` (valid UTF-8, already passed through
    /// replace_unassigned_characters), offset by `base`.
    void find_all(std::string_view text, std::size_t base, std::vector<Span>& matches);

   private:
    bool search(std::string_view text, std::size_t start, Span& match);
    const Regex& regex_;
    struct Scratch;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  std::string pattern_;
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

/// The Oniguruma pattern that matches `text` literally.
std::string escape_regex(std::string_view text);

}  // namespace megatron
