#include "megatron/datasets/webdataset/shard_names.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "megatron/base/error.h"
#include "megatron/base/format.h"

namespace megatron {
namespace {

constexpr std::int64_t kMostNames = 10'000'000;

[[noreturn]] void too_many(const std::string& pattern) {
  throw UserError(
      {"the pattern of shards names more than ten million files", pattern, "check its ranges"});
}

std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text.size() > 18 || error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

bool has_leading_zero(std::string_view text) {
  if (text.starts_with("-")) text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0';
}

/// Returns the words of "first..last" or "first..last..step"; nullopt if `text` is none.
std::optional<std::vector<std::string>> expand_range(const std::string& text,
                                                     const std::string& pattern) {
  const std::size_t dots = text.find("..");
  if (dots == std::string::npos) return std::nullopt;
  const std::size_t more = text.find("..", dots + 2);
  const std::string first = text.substr(0, dots),
                    last =
                        text.substr(dots + 2, more == std::string::npos ? more : more - dots - 2);
  const std::optional<std::int64_t> begin = parse_number(first), end = parse_number(last);
  const std::optional<std::int64_t> step =
      more == std::string::npos ? 1 : parse_number(std::string_view(text).substr(more + 2));
  if (!begin || !end || !step) return std::nullopt;
  const std::int64_t stride = std::max<std::int64_t>(1, std::abs(*step));
  if (std::abs(*end - *begin) / stride >= kMostNames) too_many(pattern);
  const int width = has_leading_zero(first) || has_leading_zero(last)
                        ? static_cast<int>(std::max(first.size(), last.size()))
                        : 0;
  std::vector<std::string> words;
  for (std::int64_t i = 0; i <= std::abs(*end - *begin); i += stride)
    words.push_back(
        format("%0*lld", width, static_cast<long long>(*begin < *end ? *begin + i : *begin - i)));
  return words;
}

/// Expands the braces of one pattern by recursive descent.
class Expansion {
 public:
  explicit Expansion(const std::string& pattern) : pattern_(pattern) {}

  std::vector<std::string> run() {
    std::vector<std::string> names = sequence(/*depth=*/0);
    if (place_ != pattern_.size()) unbalanced();
    return names;
  }

 private:
  static constexpr int kDeepest = 64;

  [[noreturn]] void unbalanced() const {
    throw UserError({"the braces of a pattern of shards do not match", pattern_,
                     "write for example shard-{000..123}.tar"});
  }

  /// Expands up to the end, or inside braces up to a comma or the closing brace.
  std::vector<std::string> sequence(int depth) {
    std::vector<std::string> names = {""};
    while (place_ < pattern_.size()) {
      const char c = pattern_[place_];
      if (c == '}' && depth == 0) unbalanced();
      if (depth > 0 && (c == ',' || c == '}')) break;
      if (c == '{') {
        names = append(names, braces(depth + 1));
      } else {
        for (std::string& name : names) name += c;
        ++place_;
      }
    }
    return names;
  }

  std::vector<std::string> braces(int depth) {
    if (depth > kDeepest) unbalanced();
    const std::size_t begin = ++place_;
    std::vector<std::string> words;
    bool is_list = false;
    for (;; ++place_) {
      const std::vector<std::string> alternatives = sequence(depth);
      words.insert(words.end(), alternatives.begin(), alternatives.end());
      if (place_ == pattern_.size()) unbalanced();
      if (pattern_[place_] == '}') break;
      is_list = true;
    }
    const std::string inside = pattern_.substr(begin, place_++ - begin);
    if (is_list) return words;
    if (auto range = expand_range(inside, pattern_)) return *std::move(range);
    for (std::string& word : words) word = "{" + word + "}";  // as bash leaves it
    return words;
  }

  std::vector<std::string> append(const std::vector<std::string>& starts,
                                  const std::vector<std::string>& ends) const {
    if (starts.size() * ends.size() > static_cast<std::size_t>(kMostNames)) too_many(pattern_);
    std::vector<std::string> names;
    for (const std::string& start : starts)
      for (const std::string& end : ends) names.push_back(start + end);
    return names;
  }

  const std::string& pattern_;
  std::size_t place_ = 0;
};

}  // namespace

std::vector<std::string> expand_shard_names(const std::string& pattern) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= pattern.size();) {
    const std::size_t end = std::min(pattern.find("::", begin), pattern.size());
    const std::string part = pattern.substr(begin, end - begin);
    const std::vector<std::string> expanded = Expansion(part).run();
    names.insert(names.end(), expanded.begin(), expanded.end());
    begin = end + 2;
  }
  return names;
}

}  // namespace megatron
