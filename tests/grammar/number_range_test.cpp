// Bounds of numbers against the order of float64 numbers.
#include "megatron/grammar/number_range.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "grammar/grammar_texts.h"

namespace megatron {
namespace {

TEST(NumberRange, AgreesWithTheOrderOfNumbers) {
  std::mt19937 random(3);
  const auto decimal = [&](bool may_end_with_zero) {
    std::string text = random() % 3 == 0 ? "-" : "";
    text += std::to_string(random() % (random() % 2 == 0 ? 20 : 2000));
    if (random() % 2 == 0) return text;
    text += "." + std::to_string(random() % (random() % 2 == 0 ? 10 : 1000));
    if (!may_end_with_zero && text.back() == '0') text.back() = '5';
    return text;
  };
  for (int i = 0; i < 200; ++i) {
    const NumberBound bound{decimal(false), random() % 2 == 0, random() % 2 == 0};
    const double limit = std::strtod(bound.decimal.c_str(), nullptr);
    const auto grammar = grammar_of(OutputConstraint::Kind::regex, {number_range_regex(bound)});
    for (int k = 0; k < 60; ++k) {
      const std::string text = k == 0 ? bound.decimal : decimal(true);
      if (std::strtod(text.c_str(), nullptr) == 0 && text.starts_with('-')) continue;
      const double value = std::strtod(text.c_str(), nullptr);
      const bool fits = (bound.is_lower ? value > limit : value < limit) ||
                        (value == limit && !bound.is_excluded);
      EXPECT_EQ(grammar->accepts(text), fits)
          << text << (bound.is_lower ? " above " : " below ") << bound.decimal;
    }
  }
}

}  // namespace
}  // namespace megatron
