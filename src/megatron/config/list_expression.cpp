#include "megatron/config/list_expression.h"

#include <cctype>
#include <string_view>

#include "megatron/config/field_values.h"

namespace megatron {
namespace {

constexpr std::size_t kLongest = 100000;
constexpr int kDeepest = 100;
constexpr std::size_t kMostDigits = 9;

/// A value of the grammar: a list, or a number that can multiply a list.
struct Value {
  bool is_list = false;
  std::int64_t number = 0;
  std::vector<std::int64_t> items;
};

/// sum := product ('+' product)*; product := atom ('*' atom)*; atom := number | '(' sum ')' | '['
/// numbers ']'. Throws Malformed.
class Reader {
 public:
  struct Malformed {};
  explicit Reader(std::string_view text) : text_(text) {}

  Value read() {
    Value value = sum(0);
    skip_spaces();
    if (at_ != text_.size()) throw Malformed{};
    return value;
  }

 private:
  Value sum(int depth) {
    Value left = product(depth);
    while (take('+')) {
      const Value right = product(depth);
      if (!left.is_list || !right.is_list) throw Malformed{};
      left.items.insert(left.items.end(), right.items.begin(), right.items.end());
      check(left);
    }
    return left;
  }

  Value product(int depth) {
    Value left = atom(depth);
    while (take('*')) {
      Value right = atom(depth);
      if (left.is_list == right.is_list) throw Malformed{};
      const std::int64_t times = left.is_list ? right.number : left.number;
      left = repeated(left.is_list ? left : right, times);
    }
    return left;
  }

  static Value repeated(const Value& list, std::int64_t times) {
    Value result{true, 0, {}};
    for (std::int64_t i = 0; i < times && !list.items.empty(); ++i) {
      result.items.insert(result.items.end(), list.items.begin(), list.items.end());
      check(result);
    }
    return result;
  }

  Value atom(int depth) {
    if (depth > kDeepest) throw Malformed{};
    if (take('(')) {
      Value inner = sum(depth + 1);
      if (!take(')')) throw Malformed{};
      return inner;
    }
    if (!take('[')) return {false, number(), {}};
    Value list{true, 0, {}};
    while (!take(']')) {
      list.items.push_back(number());
      check(list);
      if (!take(',') && !peek(']')) throw Malformed{};
    }
    return list;
  }

  std::int64_t number() {
    skip_spaces();
    const std::size_t start = at_;
    std::int64_t value = 0;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) {
      if (at_ - start == kMostDigits) throw Malformed{};
      value = value * 10 + (text_[at_++] - '0');
    }
    if (at_ == start) throw Malformed{};
    return value;
  }

  static void check(const Value& value) {
    if (value.items.size() > kLongest) throw Malformed{};
  }
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool peek(char c) {
    skip_spaces();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c) {
    if (!peek(c)) return false;
    ++at_;
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<std::vector<std::int64_t>> list_expression(const std::string& text) {
  try {
    const Value value = Reader(text).read();
    if (value.is_list) return value.items;
  } catch (const Reader::Malformed&) {
    return std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::int64_t> layer_period(const std::string& text) {
  try {
    const std::int64_t period = integer_value(text);
    return period < 1 ? std::nullopt : std::optional(period);
  } catch (const FieldError&) {
    return std::nullopt;
  }
}

}  // namespace megatron
