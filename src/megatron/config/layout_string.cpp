#include "megatron/config/layout_string.h"

#include <algorithm>
#include <string>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxSymbols = 1'000'000;
const char* const kLanguage =
    "write E for the embedding, t for a layer, m for one of multi-token prediction, L for the "
    "output, | between stages, x*n or (...)*n to repeat";

/// A symbol of the expanded text, and its position in the original text.
struct Symbol {
  char letter;
  std::size_t position;
};

/// Returns the text around `position` with a caret below it. Unprintable characters are shown as
/// '?'.
std::string pointed_at(std::string_view text, std::size_t position) {
  constexpr std::size_t kAround = 40;
  const std::size_t begin = position > kAround ? position - kAround : 0,
                    end = std::min(text.size(), position + kAround);
  std::string shown(text.substr(begin, end - begin));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  const std::string left = begin > 0 ? "..." : "", right = end < text.size() ? "..." : "";
  return "\n    " + left + shown + right + "\n    " +
         std::string(left.size() + position - begin, ' ') + "^";
}

[[noreturn]] void fail(std::string_view text, std::size_t position, const std::string& reason,
                       const std::string& fix = kLanguage) {
  const std::string place =
      position < text.size() ? "position " + std::to_string(position + 1) : "the end";
  throw UserError({"--pipeline-model-parallel-layout",
                   reason + " at " + place + pointed_at(text, position), fix});
}

/// Parses the text and expands all repetitions.
class Expander {
 public:
  explicit Expander(std::string_view text) : text_(text) {}

  std::vector<Symbol> run() {
    std::vector<Symbol> symbols;
    while (position_ < text_.size()) {
      const std::size_t begin = position_;
      if (text_[position_] == ',') {
        ++position_;
      } else if (text_[position_] == '(') {
        append_repeated(symbols, group(), begin);
      } else {
        append_repeated(symbols, {symbol()}, begin);
      }
    }
    return symbols;
  }

 private:
  Symbol symbol() {
    const char letter = text_[position_];
    if (letter == '(') fail(text_, position_, "a group inside a group");
    if (std::string_view("EtmL|").find(letter) == std::string_view::npos)
      fail(text_, position_, "unexpected character");
    return {letter, position_++};
  }

  std::vector<Symbol> group() {
    const std::size_t begin = position_++;
    std::vector<Symbol> symbols;
    bool is_empty = true;
    for (;; is_empty = false) {
      skip_commas();
      if (position_ == text_.size()) fail(text_, begin, "a group without ')'");
      if (text_[position_] == ')') break;
      const std::size_t place = position_;
      append_repeated(symbols, {symbol()}, place);
    }
    if (is_empty) fail(text_, begin, "an empty group");
    ++position_;
    if (!has_star()) fail(text_, position_, "no *n behind a group");
    return symbols;
  }

  void skip_commas() {
    while (position_ < text_.size() && text_[position_] == ',') ++position_;
  }

  bool has_star() const { return position_ < text_.size() && text_[position_] == '*'; }

  bool has_digit() const {
    return position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9';
  }

  /// Parses an optional "*n" and returns n, or 1 if there is none.
  std::size_t repetitions() {
    if (!has_star()) return 1;
    ++position_;
    if (!has_digit()) fail(text_, position_, "no number behind '*'");
    std::size_t number = 0;
    for (; has_digit(); ++position_)
      number =
          std::min(kMaxSymbols + 1, number * 10 + static_cast<std::size_t>(text_[position_] - '0'));
    if (has_star()) fail(text_, position_, "a repetition of a repetition");
    return number;
  }

  void append_repeated(std::vector<Symbol>& symbols, const std::vector<Symbol>& more,
                       std::size_t begin) {
    const std::size_t number = repetitions();
    if (more.empty()) return;
    if (number > (kMaxSymbols - std::min(kMaxSymbols, symbols.size())) / more.size())
      fail(text_, begin, "more than " + std::to_string(kMaxSymbols) + " symbols");
    for (std::size_t i = 0; i < number; ++i)
      symbols.insert(symbols.end(), more.begin(), more.end());
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

/// Divides the symbols into stages and checks their order.
class StageReader {
 public:
  explicit StageReader(std::string_view text) : text_(text), stages_(1) {}

  void read(const Symbol& symbol) {
    StageLayers& stage = stages_.back();
    switch (symbol.letter) {
      case '|':
        stages_.push_back({.first_layer = num_layers_});
        return;
      case 'E':
        if (has_embedding_) fail(text_, symbol.position, "a second E", "the embedding stands once");
        has_embedding_ = stage.has_embedding = true;
        return;
      case 't':
        if (!has_embedding_)
          fail(text_, symbol.position, "a layer without an E in front",
               "begin with E, the embedding");
        if (has_output_)
          fail(text_, symbol.position, "a layer behind L",
               "the output, L, stands behind all layers");
        if (num_mtp_ > 0)
          fail(text_, symbol.position, "a layer behind m",
               "multi-token prediction, m, stands behind all layers");
        ++num_layers_, ++stage.num_layers;
        return;
      case 'm':
        if (num_layers_ == 0 || has_output_)
          fail(text_, symbol.position,
               has_output_ ? "an m behind L" : "an m without a layer in front",
               "multi-token prediction, m, stands between the layers and L");
        if (num_mtp_ != stage.num_mtp)
          fail(text_, symbol.position, "an m in a second stage", "write all m in one stage");
        for (std::int64_t* count : {&num_mtp_, &stage.num_mtp, &num_layers_, &stage.num_layers})
          ++*count;
        return;
      default:  // L
        if (!has_embedding_)
          fail(text_, symbol.position, "an L without an E in front", "begin with E, the embedding");
        if (has_output_) fail(text_, symbol.position, "a second L", "the output stands once");
        has_output_ = stage.has_output = true;
    }
  }

  std::vector<StageLayers> stages() {
    if (!has_embedding_) fail(text_, 0, "no E", "begin with E, the embedding");
    if (!has_output_) fail(text_, text_.size(), "no L", "end with L, the output");
    return std::move(stages_);
  }

 private:
  std::string_view text_;
  std::vector<StageLayers> stages_;
  std::int64_t num_layers_ = 0, num_mtp_ = 0;  ///< so far; num_layers_ counts both
  bool has_embedding_ = false, has_output_ = false;
};

}  // namespace

std::vector<StageLayers> parse_layout_string(std::string_view text) {
  StageReader reader(text);
  for (const Symbol& symbol : Expander(text).run()) reader.read(symbol);
  return reader.stages();
}

}  // namespace megatron
