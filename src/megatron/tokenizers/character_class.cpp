#include "megatron/tokenizers/character_class.h"

#include <utf8proc.h>

#include <algorithm>
#include <memory>

#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/unicode_tables.h"

namespace megatron {
namespace {

std::uint8_t class_of_category(std::string_view category) {
  switch (category[0]) {
    case 'L':
      return category[1] == 'l'                         ? kLowerLetter
             : category[1] == 'u' || category[1] == 't' ? kUpperLetter
                                                        : kUncasedLetter;
    case 'M':
      return kMark;
    case 'N':
      return kNumber;
    default:
      return kOther;
  }
}

}  // namespace

CharacterClasses::CharacterClasses() {
  const auto fill = [this](char32_t first, char32_t last, std::uint8_t value) {
    std::fill(classes_.begin() + first, classes_.begin() + last + 1, value);
  };
  classes_.fill(kOther);
  const auto classify = [this](char32_t first, char32_t last) {
    for (char32_t c = first; c <= last; ++c)
      classes_[c] = class_of_category(utf8proc_category_string(static_cast<utf8proc_int32_t>(c)));
  };
  // Blocks of one class are filled at once, because the first use of a tokenizer waits for this.
  classify(0, 0x33FF);
  fill(0x3400, 0x4DBF, kUncasedLetter);
  classify(0x4DC0, 0x4DFF);
  fill(0x4E00, 0x9FFF, kUncasedLetter);
  classify(0xA000, 0xABFF);
  fill(0xAC00, 0xD7A3, kUncasedLetter);
  classify(0xD7A4, 0xD7FF);
  classify(0xF900, 0x1FFFF);
  classify(0x20000, 0x323FF);
  classify(0xE0000, 0xE01FF);
  for (const auto& range : unicode_tables::assigned_since_14())
    fill(range.first, range.last, class_of_category(range.category));
  for (char32_t c = 0; c <= 0x3000; ++c)
    if (is_white_space(c)) classes_[c] = kSpace;
  classes_['\r'] = classes_['\n'] = kSpace | kNewline;
}

const CharacterClasses& CharacterClasses::instance() {
  static const std::unique_ptr<const CharacterClasses> classes(new CharacterClasses);
  return *classes;
}

}  // namespace megatron
