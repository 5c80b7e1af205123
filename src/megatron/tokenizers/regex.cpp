#define PCRE2_CODE_UNIT_WIDTH 8
#include "megatron/tokenizers/regex.h"

#include <pcre2.h>

#include <array>
#include <map>

#include "megatron/base/error.h"
#include "megatron/tokenizers/regex_syntax.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

constexpr std::uint32_t kMatchOptions = PCRE2_NO_UTF_CHECK;
constexpr std::uint32_t kMatchLimit = 1u << 30;
constexpr std::uint32_t kHeapLimitKibibytes = 1u << 22;

/// Compiles a pattern of PCRE2. Throws std::string with the reason when that fails.
pcre2_code* compile(const std::string& pattern, RegexDialect dialect) {
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const std::uint32_t anchors =
      dialect == RegexDialect::rust ? PCRE2_DOLLAR_ENDONLY : PCRE2_MULTILINE;
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | anchors, &error, &offset, context.get());
  if (code == nullptr) throw message_of(error);
  pcre2_jit_compile(
      code, PCRE2_JIT_COMPLETE);  // without JIT the slower interpreter finds the same matches
  return code;
}

/// Finds what classes match, in the text of all characters.
class ClassMembers {
 public:
  const CharacterSet& operator()(const std::string& pcre2_class) {
    const auto [found, is_new] = known_.try_emplace(pcre2_class);
    if (is_new) found->second = find(pcre2_class);
    return found->second;
  }

 private:
  CharacterSet find(const std::string& pcre2_class) {
    if (text_.empty())
      for (char32_t c = 0; c <= 0x10FFFF; ++c)
        if (c < 0xD800 || c > 0xDFFF) append_utf8(text_, c);
    const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
        compile(pcre2_class + "+", RegexDialect::oniguruma), &pcre2_code_free);
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
        pcre2_match_data_create_from_pattern(code.get(), nullptr), &pcre2_match_data_free);
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match.get());
    CharacterSet set;
    std::size_t start = 0;
    while (pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), start,
                       kMatchOptions, match.get(), nullptr) > 0) {
      std::size_t first = offsets[0], last = start = offsets[1];
      const char32_t first_character = next_code_point(text_, first);
      set.append(first_character, previous_code_point(text_, last));
    }
    return set;
  }

  std::string text_;
  std::map<std::string, CharacterSet> known_;
};

}  // namespace

struct Regex::Compiled {
  pcre2_code* code = nullptr;
  ~Compiled() { pcre2_code_free(code); }
};

struct Regex::Finder::Scratch {
  pcre2_match_data* match;
  pcre2_match_context* context;
  explicit Scratch(const pcre2_code* code)
      : match(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)) {
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKibibytes);
  }
  ~Scratch() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
  }
};

Regex::Regex(std::string pattern, const std::string& source, RegexDialect dialect)
    : pattern_(std::move(pattern)), compiled_(std::make_unique<Compiled>()) {
  const auto fail = [&](const std::string& reason) {
    throw UserError({source + ": the regular expression is not usable",
                     reason + " in \"" + pattern_ + "\"", "check the pattern"});
  };
  try {
    compiled_->code = compile(translate_regex(pattern_, dialect, ClassMembers()), dialect);
  } catch (const std::string& reason) {
    fail(reason);
  }
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Regex::Finder::Finder(const Regex& regex)
    : regex_(regex), scratch_(std::make_unique<Scratch>(regex.compiled_->code)) {}
Regex::Finder::~Finder() = default;

bool Regex::Finder::search(std::string_view text, std::size_t start, Span& match) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const pcre2_code* code = regex_.compiled_->code;
  int result = pcre2_match(code, subject, text.size(), start, kMatchOptions, scratch_->match,
                           scratch_->context);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT)
    result = pcre2_match(code, subject, text.size(), start, kMatchOptions | PCRE2_NO_JIT,
                         scratch_->match, scratch_->context);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0)
    throw UserError(
        {"the tokenizer's pattern gave up on a text of " + std::to_string(text.size()) + " bytes",
         message_of(result) + " in \"" + regex_.pattern_ + "\"",
         "split the text into shorter documents"});
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(scratch_->match);
  match = {offsets[0], offsets[1]};
  return true;
}

void Regex::Finder::find_all(std::string_view text, std::size_t base, std::vector<Span>& matches) {
  std::size_t start = 0;
  std::size_t last_end = std::string_view::npos;
  Span match;
  while (start <= text.size() && search(text, start, match)) {
    if (match.begin == match.end &&
        match.end == last_end) {  // after an empty match at a match's end, advance one character
      do ++start;
      while (start < text.size() && is_continuation_byte(text[start]));
      continue;
    }
    matches.push_back({base + match.begin, base + match.end});
    start = last_end = match.end;
  }
}

std::string escape_regex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\.+*?()|[]{}^$#&-~/").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace megatron
