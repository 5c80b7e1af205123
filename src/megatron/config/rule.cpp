#include "megatron/config/rule.h"

#include <algorithm>

namespace megatron {
namespace rules {
namespace {

Words got_of(const char* verb, const Condition& other, const Wording& wording) {
  return verb + other.words() + wording.why;
}

/// Returns "add --other, or leave --one out", unless the wording has another fix.
Words fix_of(const Condition& one, const Condition& other, const Wording& wording) {
  return wording.fix.empty() ? "add " + other.words() + ", or leave " + one.words() + " out"
                             : wording.fix;
}

}  // namespace

Words::Words() = default;
Words::Words(const Words&) = default;
Words::Words(Words&&) noexcept = default;
Words& Words::operator=(const Words&) = default;
Words& Words::operator=(Words&&) noexcept = default;
Words::~Words() = default;

Words::Words(std::initializer_list<Piece> pieces) {
  for (const Piece& piece : pieces)
    parts_.push_back({piece.number_ ? text_of(*piece.number_) : std::string(piece.text_),
                      piece.setting_, piece.show_, piece.number_of_, piece.words_of_});
}

std::string Words::text(S settings) const {
  std::string all;
  for (const Part& part : parts_) {
    all += part.text;
    if (part.number_of) all += text_of(part.number_of(settings));
    if (part.words_of) all += part.words_of(settings).text(settings);
    if (!part.setting) continue;
    const std::string value = part.setting->value(settings);
    switch (part.show) {
      case Show::flag:
        all += part.setting->flag();
        break;
      case Show::off_flag:
        all += part.setting->off_flag();
        break;
      case Show::value:
        all += value;
        break;
      case Show::flag_and_value:
        all += part.setting->flag() + " " + value;
        break;
    }
  }
  return all;
}

bool Words::mentions_any(const FieldNames& names, S settings) const {
  return std::ranges::any_of(parts_, [&](const Part& part) {
    return (part.setting && names.contains(part.setting->name())) ||
           (part.words_of && part.words_of(settings).mentions_any(names, settings));
  });
}

bool Message::mentions_any(const FieldNames& names, S settings) const {
  const auto is_named = [&](const Setting& setting) { return names.contains(setting.name()); };
  return what.mentions_any(names, settings) || got.mentions_any(names, settings) ||
         fix.mentions_any(names, settings) || std::ranges::any_of(reads, is_named);
}

Words operator+(Words first, const Words& second) {
  first.parts_.insert(first.parts_.end(), second.parts_.begin(), second.parts_.end());
  return first;
}

bool Condition::holds(S settings) const {
  const bool is_met =
      value_.empty() ? setting_.is_given(settings) : setting_.value(settings) == value_;
  return is_met != is_negated_;
}

Condition Condition::negated() const {
  Condition other = *this;
  other.is_negated_ = !is_negated_;
  return other;
}

Words Condition::words() const {
  if (!value_.empty()) return {setting_, " " + value_};
  if (shows_value_) return rules::with_value(setting_);
  return Piece(setting_, setting_.is_on_by_default() ? Show::off_flag : Show::flag);
}

Condition Condition::with_value() const {
  Condition other = *this;
  other.shows_value_ = true;
  return other;
}

Rules::Rules(std::initializer_list<Rules> lists) {
  for (const Rules& rules : lists)
    list_.insert(list_.end(), rules.list_.begin(), rules.list_.end());
}

Rules refuse(std::initializer_list<Condition> conditions, Words got, Words fix) {
  Message message{conditions.begin()->words(), std::move(got), std::move(fix)};
  for (const Condition& condition : conditions) message.reads.push_back(condition.setting());
  return Rules([all = std::vector<Condition>(conditions), message = std::move(message)](S s) {
    const bool hold = std::ranges::all_of(all, [&](const Condition& c) { return c.holds(s); });
    return hold ? std::optional(message) : std::nullopt;
  });
}

Rules needs(const Condition& one, const Condition& other, const Wording& wording) {
  return refuse({one, without(other)}, got_of("needs ", other, wording),
                fix_of(one, other, wording));
}

Rules excludes(const Condition& one, const Condition& other, const Wording& wording) {
  return refuse({one, other}, got_of("excludes ", other, wording),
                wording.fix.empty() ? "give one of the two" : wording.fix);
}

Rules tunes(std::initializer_list<Condition> some, const Condition& other, const Wording& wording) {
  Rules all{};
  for (const Condition& one : some)
    all = {all, refuse({one, without(other)}, got_of("has no effect without ", other, wording),
                       fix_of(one, other, wording))};
  return all;
}

Rules idle(std::initializer_list<Condition> some, const Condition& other, const Wording& wording) {
  Rules all{};
  for (const Condition& one : some) {
    const Words fix = (wording.fix.empty() ? "leave " : wording.fix + ", or leave ") + one.words();
    all = {all, refuse({one, other}, got_of("has no effect with ", other, wording), fix + " out")};
  }
  return all;
}

Rules divides(const Setting& unit, const Setting& size, const Wording& wording) {
  return Rules([=](S s) -> std::optional<Message> {
    const auto n = static_cast<std::int64_t>(size.number(s).value_or(0)),
               of = static_cast<std::int64_t>(unit.number(s).value_or(0));
    if (of == 0 || n % of == 0) return std::nullopt;
    Message message = indivisible(size, n, unit, of);
    if (!wording.fix.empty()) message.fix = wording.fix;
    return message;
  });
}

Rules at_most(const Setting& limit, const Setting& number) {
  const Message message{
      number, {value(number), " is above ", with_value(limit)}, {"lower ", number}};
  return Rules([=](S s) {
    const auto given = number.number(s), most = limit.number(s);
    return given && most && *given > *most ? std::optional(message) : std::nullopt;
  });
}

Rules required(const Setting& setting, const std::string& meaning) {
  const Message message{setting, "is required", {"add ", setting, " N, " + meaning}};
  return Rules([=](S s) {
    return setting.number(s).value_or(0) <= 0 ? std::optional(message) : std::nullopt;
  });
}

Rules rule(Predicate is_broken, Message message) {
  return Rules([is_broken, message = std::move(message)](S s) {
    return is_broken(s) ? std::optional(message) : std::nullopt;
  });
}

Rules rule(Predicate is_broken, Message (*message)(S)) {
  return Rules([=](S s) { return is_broken(s) ? std::optional(message(s)) : std::nullopt; });
}

Rules reported(std::optional<UserError::Parts> (*mistake)(S), std::vector<Setting> reads) {
  return Rules([mistake, reads = std::move(reads)](S s) -> std::optional<Message> {
    const auto parts = mistake(s);
    if (!parts) return std::nullopt;
    return Message{parts->what, parts->got, parts->fix, reads};
  });
}

Rules when(Predicate applies, const Rules& rules) {
  Rules all{};
  for (const auto& check : rules.list())
    all = {all, Rules([=](S s) { return applies(s) ? (*check)(s) : std::nullopt; })};
  return all;
}

std::string multiples_near(std::int64_t size, std::int64_t unit) {
  const std::int64_t below = size / unit * unit;
  return (below > 0 ? text_of(below) + " or " : "") + text_of(below + unit);
}

std::int64_t largest_divisor(std::int64_t size, std::int64_t most) {
  std::int64_t degree = std::clamp<std::int64_t>(most, 1, size);
  while (size % degree != 0) --degree;
  return degree;
}

Message indivisible(const Setting& flag, std::int64_t size, const Setting& unit_flag,
                    std::int64_t unit) {
  return {flag,
          {size, " is no multiple of ", unit_flag, " ", unit},
          {"use ", unit_flag, " ", largest_divisor(size, unit), ", or ", flag, " ",
           multiples_near(size, unit)}};
}

}  // namespace rules

Problems evaluate(const Rules& rules, const Settings& settings, const FieldNames& skip) {
  Problems problems;
  for (const auto& check : rules.list()) {
    const auto message = (*check)(settings);
    if (message && !message->mentions_any(skip, settings))
      problems.add(
          {message->what.text(settings), message->got.text(settings), message->fix.text(settings)});
  }
  return problems;
}

}  // namespace megatron
