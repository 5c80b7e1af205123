#define PCRE2_CODE_UNIT_WIDTH 8
#include "megatron/base/pattern.h"

#include <pcre2.h>

#include <array>

namespace megatron {
namespace {

constexpr std::uint32_t kMatchOptions = PCRE2_NO_UTF_CHECK;
constexpr std::uint32_t kMatchLimit = 1u << 30;
constexpr std::uint32_t kHeapLimitKibibytes = 1u << 22;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct Pattern::Compiled {
  pcre2_code* code = nullptr;
  ~Compiled() { pcre2_code_free(code); }
};

struct Pattern::Finder::Scratch {
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

Pattern::Pattern(const std::string& pattern, Anchors anchors)
    : compiled_(std::make_unique<Compiled>()) {
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const std::uint32_t of_anchors =
      anchors == Anchors::text ? PCRE2_DOLLAR_ENDONLY : PCRE2_MULTILINE;
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | of_anchors, &error, &offset, context.get());
  if (compiled_->code == nullptr) throw message_of(error);
  // Without JIT the slower interpreter finds the same matches.
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

Pattern::Finder::Finder(const Pattern& pattern)
    : pattern_(pattern), scratch_(std::make_unique<Scratch>(pattern.compiled_->code)) {}
Pattern::Finder::~Finder() = default;

std::optional<Span> Pattern::Finder::find(std::string_view text, std::size_t start) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const pcre2_code* code = pattern_.compiled_->code;
  int result = pcre2_match(code, subject, text.size(), start, kMatchOptions, scratch_->match,
                           scratch_->context);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT)
    result = pcre2_match(code, subject, text.size(), start, kMatchOptions | PCRE2_NO_JIT,
                         scratch_->match, scratch_->context);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) throw message_of(result);
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(scratch_->match);
  return Span{offsets[0], offsets[1]};
}

}  // namespace megatron
