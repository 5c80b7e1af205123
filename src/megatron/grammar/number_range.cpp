#include "megatron/grammar/number_range.h"

#include <algorithm>

namespace megatron {
namespace {

/// Decimal digits that every float64 keeps.
constexpr std::size_t kExactDigits = 15;

std::string digits_between(char first, char last) {
  return std::string("[") + first + "-" + last + "]";
}

std::string up_to(std::string_view what, std::size_t count) {
  return std::string(what) + "{0," + std::to_string(count) + "}";
}

/// The numbers without a sign that are larger, or smaller, than a number.
class Magnitude {
 public:
  explicit Magnitude(std::string_view decimal) {
    const std::size_t point = std::min(decimal.find('.'), decimal.size());
    whole_ = decimal.substr(0, point);
    if (point < decimal.size()) fraction_ = decimal.substr(point + 1);
    while (fraction_.ends_with('0')) fraction_.pop_back();
    const std::size_t used = std::min(whole_.size() + fraction_.size(), kExactDigits - 1);
    places_ = std::max<std::size_t>(1, kExactDigits - whole_.size());
    if (whole_.size() >= kExactDigits) places_ = 1;
    free_places_ = kExactDigits - used;
    any_fraction_ = "(\\.\\d{1," + std::to_string(places_) + "})?";
  }

  bool is_zero() const { return whole_ == "0" && fraction_.empty(); }

  std::string larger(bool or_equal) const {
    std::string all = "[1-9]\\d{" + std::to_string(whole_.size()) + ",}" + any_fraction_;
    for (std::size_t i = 0; i < whole_.size(); ++i)
      if (whole_[i] < '9')
        all += "|" + whole_.substr(0, i) + digits_between(static_cast<char>(whole_[i] + 1), '9') +
               "\\d{" + std::to_string(whole_.size() - i - 1) + "}" + any_fraction_;
    for (std::size_t i = 0; i < fraction_.size(); ++i)
      if (fraction_[i] < '9')
        all += "|" + whole_ + "\\." + fraction_.substr(0, i) +
               digits_between(static_cast<char>(fraction_[i] + 1), '9') +
               up_to("\\d", free_places_);
    all += "|" + whole_ + "\\." + fraction_ + up_to("\\d", free_places_ - 1) + "[1-9]" +
           up_to("0", free_places_);
    return or_equal ? all + "|" + equal() : all;
  }

  std::string smaller(bool or_equal) const {
    std::string all = or_equal ? equal() : "[^\\x00-\\u{10FFFF}]";  // no character is of this class
    if (whole_.size() > 1)
      all += "|0" + any_fraction_ + "|[1-9]\\d{0," + std::to_string(whole_.size() - 2) + "}" +
             any_fraction_;
    for (std::size_t i = 0; i < whole_.size(); ++i) {
      const char least = i == 0 && whole_.size() > 1 ? '1' : '0';
      if (whole_[i] > least)
        all += "|" + whole_.substr(0, i) + digits_between(least, static_cast<char>(whole_[i] - 1)) +
               "\\d{" + std::to_string(whole_.size() - i - 1) + "}" + any_fraction_;
    }
    if (!fraction_.empty()) all += "|" + whole_;
    for (std::size_t i = 0; i < fraction_.size(); ++i) {
      const std::string begin = "|" + whole_ + "\\." + fraction_.substr(0, i);
      if (i > 0) all += begin;
      if (fraction_[i] > '0')
        all += begin + digits_between('0', static_cast<char>(fraction_[i] - 1)) +
               up_to("\\d", free_places_);
    }
    return all;
  }

 private:
  std::string equal() const {
    if (fraction_.empty()) return whole_ + "(\\.0{1," + std::to_string(places_) + "})?";
    return whole_ + "\\." + fraction_ + up_to("0", free_places_);
  }

  std::string whole_, fraction_, any_fraction_;
  std::size_t places_ = 1;       ///< digits behind the point of numbers with another whole part
  std::size_t free_places_ = 1;  ///< digits behind those that agree with the fraction
};

}  // namespace

std::string number_range_regex(const NumberBound& bound) {
  const bool is_negative = bound.decimal.starts_with('-');
  const Magnitude magnitude(std::string_view(bound.decimal).substr(is_negative ? 1 : 0));
  const bool or_equal = !bound.is_excluded;
  const std::string any = "(0|[1-9]\\d*)(\\.\\d{1,15})?";
  // On the other side of zero than the bound every number counts, or none does. "-0" is not
  // written with a bound of zero.
  if (is_negative && !magnitude.is_zero())
    return bound.is_lower ? any + "|-(" + magnitude.smaller(or_equal) + ")"
                          : "-(" + magnitude.larger(or_equal) + ")";
  return bound.is_lower ? magnitude.larger(or_equal)
                        : "-(" + Magnitude("0").larger(false) + ")|" + magnitude.smaller(or_equal);
}

}  // namespace megatron
