#include "megatron/config/slurm_variables.h"

#include <charconv>

#include "megatron/base/error.h"
#include "megatron/base/format.h"

namespace megatron {
namespace {

constexpr std::int64_t kMaxEntries = 1'000'000;  ///< longer lists are rejected as mistakes

class NodeListReader {
 public:
  NodeListReader(std::string_view text, const std::string& variable)
      : text_(text), variable_(variable) {}

  std::vector<std::string> read() {
    std::vector<std::string> nodes;
    do {
      std::vector<std::string> names = read_names();
      nodes.insert(nodes.end(), names.begin(), names.end());
    } while (take(','));
    if (at_ != text_.size()) fail();
    return nodes;
  }

 private:
  [[noreturn]] void fail() const {
    throw UserError({variable_, "'" + std::string(text_) + "'",
                     "write node names as Slurm does, such as n[01-04,7]"});
  }

  bool take(char wanted) {
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  /// Parses the names up to the next comma outside brackets: text and ranges in any order.
  std::vector<std::string> read_names() {
    std::vector<std::string> names{""};
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] != ',') {
      if (text_[at_] == ']') fail();
      if (!take('[')) {
        for (std::string& name : names) name += text_[at_];
        ++at_;
        continue;
      }
      const std::vector<std::string> numbers = read_ranges();
      std::vector<std::string> longer;
      if (static_cast<std::int64_t>(names.size() * numbers.size()) > kMaxEntries) fail();
      for (const std::string& name : names) {
        for (const std::string& number : numbers) longer.push_back(name + number);
      }
      names = std::move(longer);
    }
    if (at_ == start) fail();
    return names;
  }

  std::vector<std::string> read_ranges() {
    std::vector<std::string> numbers;
    do {
      const std::string_view first = read_digits();
      const std::string_view last = take('-') ? read_digits() : first;
      const std::int64_t from = number(first), to = number(last);
      if (to < from || to - from >= kMaxEntries) fail();
      for (std::int64_t value = from; value <= to; ++value) {
        numbers.push_back(
            format("%0*lld", static_cast<int>(first.size()), static_cast<long long>(value)));
      }
    } while (take(','));
    if (!take(']')) fail();
    return numbers;
  }

  std::string_view read_digits() {
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    if (at_ == start || at_ - start > 18) fail();
    return text_.substr(start, at_ - start);
  }

  static std::int64_t number(std::string_view digits) {
    std::int64_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  }

  std::string_view text_;
  const std::string& variable_;
  std::size_t at_ = 0;
};

/// Parses a number at the start of `rest`. Returns −1 if there is none.
std::int64_t take_number(std::string_view& rest) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc()) return -1;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return value;
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view text, const std::string& variable) {
  return NodeListReader(text, variable).read();
}

std::vector<std::int64_t> expand_tasks_per_node(std::string_view text,
                                                const std::string& variable) {
  const UserError wrong(
      {variable, "'" + std::string(text) + "'", "write counts as Slurm does, such as 4(x2),3"});
  std::vector<std::int64_t> tasks;
  for (std::string_view rest = text;;) {
    const std::int64_t count = take_number(rest);
    std::int64_t times = 1;
    if (count < 1) throw wrong;
    if (rest.starts_with("(x")) {
      rest.remove_prefix(2);
      times = take_number(rest);
      if (times < 1 || times > kMaxEntries || !rest.starts_with(")")) throw wrong;
      rest.remove_prefix(1);
    }
    tasks.insert(tasks.end(), static_cast<std::size_t>(times), count);
    if (rest.empty()) return tasks;
    if (rest[0] != ',') throw wrong;
    rest.remove_prefix(1);
  }
}

}  // namespace megatron
