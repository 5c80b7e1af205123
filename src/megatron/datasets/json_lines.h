// Extracts texts from JSON lines with simdjson.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Reads the string members `keys` of one JSON object after another. Not thread-safe.
class JsonLineParser {
 public:
  explicit JsonLineParser(std::vector<std::string> keys);
  ~JsonLineParser();

  /// For each key its texts: one for a string, several for a list of strings. Valid until the next
  /// call. `line` must be followed by TextChunk::kPadding readable bytes; a UserError names
  /// `source`, "file:line". Bytes that are not UTF-8 are read as U+FFFD.
  const std::vector<std::vector<std::string_view>>& parse(std::string_view line,
                                                          const std::string& source);
  /// Whether the last line held bytes that are not UTF-8.
  bool had_invalid_utf8() const { return !replaced_.empty(); }

 private:
  void parse_with_nlohmann(std::string_view line, const std::string& source,
                           const std::string& reason);
  [[noreturn]] void refuse(const std::string& what, const std::string& source,
                           const std::string& fix = "") const;
  void require_all(const std::vector<bool>& found, const std::string& source) const;

  struct Simd;
  std::unique_ptr<Simd> simd_;
  std::vector<std::string> keys_;
  std::vector<std::vector<std::string_view>> texts_;
  std::vector<std::unique_ptr<std::string>> owned_;
  std::string replaced_;  // the line in valid UTF-8 with its padding, when it was not
};

}  // namespace megatron
