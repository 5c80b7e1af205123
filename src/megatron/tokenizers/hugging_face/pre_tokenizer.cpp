#include "megatron/tokenizers/hugging_face/pre_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/byte_level.h"
#include "megatron/tokenizers/hugging_face/component.h"
#include "megatron/tokenizers/hugging_face/split.h"
#include "megatron/tokenizers/hugging_face/text_growth.h"
#include "megatron/tokenizers/patterns.h"
#include "megatron/tokenizers/unicode.h"

namespace megatron::hugging_face {
namespace {

/// Rewrites every word by `append(out, word)` and updates its span.
template <class Append>
void rewrite_words(PreTokenizedString& words, Append append) {
  std::string text;
  text.reserve(words.text.size() + words.text.size() / 2);
  std::size_t start = 0;
  for (Span& span : words.spans) {
    const std::size_t begin = text.size();
    const auto word = std::string_view(words.text).substr(span.begin, span.end - span.begin);
    if (span.begin < words.start) {
      append(text, word.substr(0, words.start - span.begin));
      start = text.size();
      text.resize(begin);
    }
    append(text, word);
    span = {begin, text.size()};
  }
  words.text = std::move(text);
  words.start = start;
}

class Split : public PreTokenizer {
 public:
  Split(const std::string& pattern, SplitBehavior behavior, bool invert, const std::string& source)
      : pattern_(pattern, source),
        splitter_(pattern, RegexDialect::oniguruma, source),
        behavior_(behavior),
        invert_(invert) {}
  void apply(PreTokenizedString& words) const override {
    split_at_regex(words, pattern_, behavior_, invert_);
  }
  /// Returns the scanner of a known pattern that keeps every match as a word.
  const WordSplitter* scanner() const {
    return splitter_.is_scanner() && behavior_ == SplitBehavior::isolated ? &splitter_ : nullptr;
  }

 private:
  Regex pattern_;
  WordSplitter splitter_;
  SplitBehavior behavior_;
  bool invert_;
};

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex, const std::string& where)
      : add_prefix_space_(add_prefix_space) {
    if (!use_regex) return;
    pattern_.emplace(std::string(patterns::kGpt2), where);
    splitter_.emplace(std::string(patterns::kGpt2), RegexDialect::oniguruma, where);
  }
  const WordSplitter* byte_level_words() const override {
    return splitter_ && !add_prefix_space_ ? &*splitter_ : nullptr;
  }
  bool is_alphabet_only() const { return !splitter_ && !add_prefix_space_; }
  void apply(PreTokenizedString& words) const override {
    if (add_prefix_space_) {
      rewrite_words(words, [](std::string& out, std::string_view word) {
        if (!word.starts_with(' ')) out += ' ';
        out += word;
      });
    }
    if (pattern_) split_at_regex(words, *pattern_, SplitBehavior::isolated, false);
    rewrite_words(words,
                  [](std::string& out, std::string_view word) { append_byte_level(out, word); });
  }

 private:
  bool add_prefix_space_;
  std::optional<Regex> pattern_;
  std::optional<WordSplitter> splitter_;
};

/// Splits at the characters that a function accepts.
template <class Predicate>
class CharacterSplit : public PreTokenizer {
 public:
  CharacterSplit(SplitBehavior behavior, Predicate is_match)
      : behavior_(behavior), is_match_(std::move(is_match)) {}
  void apply(PreTokenizedString& words) const override {
    split_at_characters(words, behavior_, is_match_);
  }

 private:
  SplitBehavior behavior_;
  Predicate is_match_;
};

template <class Predicate>
std::unique_ptr<PreTokenizer> split_at(SplitBehavior behavior, Predicate is_match) {
  return std::make_unique<CharacterSplit<Predicate>>(behavior, std::move(is_match));
}

/// Splits at white space, which it drops, and makes every punctuation character a word.
class BertPreTokenizer : public PreTokenizer {
 public:
  void apply(PreTokenizedString& words) const override {
    std::vector<Span> spans;
    spans.reserve(words.text.size() / 4);
    for (const Span& word : words.spans) {
      std::size_t begin = word.begin;
      for (std::size_t i = word.begin; i < word.end;) {
        const std::size_t at = i;
        const char32_t c = next_code_point(words.text, i);
        const bool is_apart = is_punctuation(c);
        if (!is_apart && !is_white_space(c)) continue;
        if (begin < at) spans.push_back({begin, at});
        if (is_apart) spans.push_back({at, i});
        begin = i;
      }
      if (begin < word.end) spans.push_back({begin, word.end});
    }
    words.spans = std::move(spans);
  }
};

/// Splits between scripts. A space or an unassigned character belongs to the script before it, and
/// is dropped at the beginning.
class UnicodeScripts : public PreTokenizer {
 public:
  void apply(PreTokenizedString& words) const override {
    constexpr int kAny = 0, kNone = -1;
    std::vector<Span> spans;
    for (const Span& word : words.spans) {
      int last = kNone;
      for (std::size_t i = word.begin; i < word.end;) {
        const std::size_t begin = i;
        const int script = script_number(next_code_point(words.text, i));
        if (script != kAny && script != last) {
          if (last != kNone) spans.back().end = begin;
          spans.push_back({begin, word.end});
        }
        if (script != kAny) last = script;
      }
    }
    words.spans = std::move(spans);
  }
};

class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(std::size_t length) : length_(length) {}
  void apply(PreTokenizedString& words) const override {
    std::vector<Span> spans;
    for (const Span& word : words.spans)
      for (std::size_t i = word.begin; i < word.end;) {
        const std::size_t begin = i;
        for (std::size_t count = 0; count < length_ && i < word.end; ++count)
          next_code_point(words.text, i);
        spans.push_back({begin, i});
      }
    words.spans = std::move(spans);
  }

 private:
  std::size_t length_;
};

/// Splits into the matches of \w+|[^\w\s]+.
class Whitespace : public PreTokenizer {
 public:
  void apply(PreTokenizedString& words) const override {
    enum class Kind { space, word, other };
    const auto kind_of = [](char32_t c) {
      return is_word(c) ? Kind::word : is_white_space(c) ? Kind::space : Kind::other;
    };
    std::vector<Span> spans;
    for (const Span& word : words.spans) {
      Kind previous = Kind::space;
      for (std::size_t i = word.begin; i < word.end;) {
        const std::size_t begin = i;
        const Kind kind = kind_of(next_code_point(words.text, i));
        if (kind != Kind::space && kind == previous) {
          spans.back().end = i;
        } else if (kind != Kind::space) {
          spans.push_back({begin, i});
        }
        previous = kind;
      }
    }
    words.spans = std::move(spans);
  }
};

class Metaspace : public PreTokenizer {
 public:
  enum class Prepend { first, never, always };
  Metaspace(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {
    std::size_t i = 0;
    character_ = next_code_point(replacement_, i);
  }
  bool reads_start() const override { return prepend_ == Prepend::first; }
  void apply(PreTokenizedString& words) const override {
    const auto wants_prefix = [&](std::string_view word) {
      const bool wanted =
          prepend_ == Prepend::always ||
          (prepend_ == Prepend::first && word.data() < words.text.data() + words.start);
      return wanted && !word.starts_with(' ') && !word.starts_with(replacement_);
    };
    rewrite_words(words, [&](std::string& out, std::string_view word) {
      if (wants_prefix(word)) out += replacement_;
      for (const char c : word) c == ' ' ? out += replacement_ : out += c;
    });
    if (split_)
      split_at_characters(words, SplitBehavior::merged_with_next,
                          [this](char32_t c) { return c == character_; });
  }

 private:
  std::string replacement_;
  char32_t character_ = 0;
  Prepend prepend_;
  bool split_;
};

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void apply(PreTokenizedString& words) const override {
    const std::size_t original = words.text.size();
    for (const auto& part : parts_) {
      part->apply(words);
      check_growth(original, words.text.size());
    }
  }
  bool reads_start() const override {
    return std::ranges::any_of(parts_, [](const auto& part) { return part->reads_start(); });
  }
  const WordSplitter* byte_level_words() const override {
    if (parts_.size() == 1) return parts_.front()->byte_level_words();
    if (parts_.size() != 2) return nullptr;
    const auto* const split = dynamic_cast<const Split*>(parts_[0].get());
    const auto* const byte_level = dynamic_cast<const ByteLevel*>(parts_[1].get());
    return split != nullptr && byte_level != nullptr && byte_level->is_alphabet_only()
               ? split->scanner()
               : nullptr;
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

std::unique_ptr<PreTokenizer> make_sequence(const JsonCursor& component) {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (const JsonCursor& part : component["pretokenizers"].elements())
    if (auto made = make_pre_tokenizer(part)) parts.push_back(std::move(made));
  return std::make_unique<Sequence>(std::move(parts));
}

/// Returns the one character of field `key`.
char32_t character_at(const JsonCursor& component, const std::string& key) {
  const std::string text = component[key].text();
  std::size_t size = 0;
  const char32_t c = text.empty() ? 0 : next_code_point(text, size);
  if (text.empty() || size != text.size())
    throw UserError({component[key].name() + " must be one character", "'" + text + "'", ""});
  return c;
}

std::unique_ptr<PreTokenizer> make_fixed_length(const JsonCursor& component) {
  const std::int64_t length = component->contains("length") ? component["length"].integer() : 5;
  if (length < 1)
    throw UserError(
        {component.place() + ": field 'length' must be at least 1", std::to_string(length), ""});
  return std::make_unique<FixedLength>(static_cast<std::size_t>(length));
}

std::unique_ptr<PreTokenizer> make_metaspace(const JsonCursor& component) {
  const std::string replacement = component["replacement"].text();
  character_at(component, "replacement");
  const std::string scheme =
      component->contains("prepend_scheme") ? component["prepend_scheme"].text() : "always";
  if (scheme != "always" && scheme != "first" && scheme != "never")
    throw UserError({component.place() + ": field 'prepend_scheme' must be always, first or never",
                     "'" + scheme + "'", ""});
  if (!bool_or(component, "add_prefix_space", true) && scheme != "never" &&
      component->contains("prepend_scheme"))
    throw UserError({component.place() +
                         ": fields 'add_prefix_space' and 'prepend_scheme' contradict each other",
                     "false and '" + scheme + "'", "keep prepend_scheme only"});
  auto prepend = scheme == "always"  ? Metaspace::Prepend::always
                 : scheme == "first" ? Metaspace::Prepend::first
                                     : Metaspace::Prepend::never;
  if (!bool_or(component, "add_prefix_space", true)) prepend = Metaspace::Prepend::never;
  return std::make_unique<Metaspace>(replacement, prepend, bool_or(component, "split", true));
}

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonCursor& component) {
  if (component->is_null()) return nullptr;
  const std::string type = component_type(component);
  if (type == "Sequence") return make_sequence(component);
  if (type == "Split")
    return std::make_unique<Split>(pattern_of(component), split_behavior_of(component),
                                   component["invert"].boolean(), component["pattern"].place());
  if (type == "ByteLevel")
    return std::make_unique<ByteLevel>(component["add_prefix_space"].boolean(),
                                       bool_or(component, "use_regex", true), component.place());
  if (type == "Digits")
    return split_at(component["individual_digits"].boolean() ? SplitBehavior::isolated
                                                             : SplitBehavior::contiguous,
                    is_numeric);
  if (type == "Punctuation")
    return split_at(
        component->contains("behavior") ? split_behavior_of(component) : SplitBehavior::isolated,
        is_punctuation);
  if (type == "BertPreTokenizer") return std::make_unique<BertPreTokenizer>();
  if (type == "CharDelimiterSplit")
    return split_at(SplitBehavior::removed, [delimiter = character_at(component, "delimiter")](
                                                char32_t c) { return c == delimiter; });
  if (type == "UnicodeScripts") return std::make_unique<UnicodeScripts>();
  if (type == "FixedLength") return make_fixed_length(component);
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return split_at(SplitBehavior::removed, is_white_space);
  if (type == "Metaspace") return make_metaspace(component);
  unsupported_component(type, component.place());
}

}  // namespace megatron::hugging_face
