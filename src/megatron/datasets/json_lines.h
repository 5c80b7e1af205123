// Extracts texts from JSON lines with simdjson.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Extracts the string members `keys` from JSON objects, one per call. Not thread-safe.
class JsonLineParser {
 public:
  explicit JsonLineParser(std::vector<std::string> keys);
  ~JsonLineParser();

  /// Returns the texts of each key: one for a string, several for a list of strings. The result is
  /// valid until the next call. `line` must be followed by TextChunk::kPadding readable bytes.
  /// Invalid UTF-8 is read as U+FFFD. NaN, Infinity and numbers of any size are allowed, as in
  /// Python's json.loads. A UserError names `source`, "file:line".
  const std::vector<std::vector<std::string_view>>& parse(std::string_view line,
                                                          const std::string& source);
  /// Returns whether the last line contained invalid UTF-8.
  bool had_invalid_utf8() const { return had_invalid_utf8_; }

 private:
  void parse_with_nlohmann(std::string_view line, const std::string& source);
  [[noreturn]] void refuse(const std::string& what, const std::string& source,
                           const std::string& fix = "") const;
  void require_all(const std::vector<bool>& found, const std::string& source) const;

  struct Simd;
  std::unique_ptr<Simd> simd_;
  std::vector<std::string> keys_;
  std::vector<std::vector<std::string_view>> texts_;
  std::vector<std::unique_ptr<std::string>> owned_;
  bool had_invalid_utf8_ = false;
  std::string replaced_;  // a repaired line and its padding
};

}  // namespace megatron
