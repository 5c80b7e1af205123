#include "megatron/config/rule.h"

#include <algorithm>

#include "megatron/config/field.h"

namespace megatron {
namespace rules {
namespace {

Words got_of(const char* verb, const Condition& other, const Wording& wording) {
  return verb + other.words + wording.why;
}

/// Returns "add --other, or leave --one out", unless the wording has another fix.
Words fix_of(const Condition& one, const Condition& other, const Wording& wording) {
  return wording.fix.empty() ? "add " + other.to_add + ", or leave " + one.words + " out"
                             : wording.fix;
}

std::vector<Setting> reads_of(const std::vector<Condition>& conditions) {
  std::vector<Setting> all;
  for (const Condition& one : conditions) all.insert(all.end(), one.reads.begin(), one.reads.end());
  return all;
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
                      piece.setting_, piece.show_, piece.words_of_});
}

std::string Words::text(S settings) const {
  std::string all;
  for (const Part& part : parts_) {
    all += part.text;
    if (part.words_of) all += part.words_of(settings).text(settings);
    if (!part.setting) continue;
    const std::string value = part.setting->value(settings);
    const Field& field = part.setting->field();
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
      case Show::flag_to_add:
        all += part.setting->flag();
        if (!field.is_switch()) all += " " + value_placeholder(field);
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

UserError::Parts Message::text(S settings) const {
  return {what.text(settings), got.text(settings), fix.text(settings)};
}

Words operator+(Words first, const Words& second) {
  first.parts_.insert(first.parts_.end(), second.parts_.begin(), second.parts_.end());
  return first;
}

Condition::Condition(const Setting& setting)
    : Condition([setting](S s) { return setting.is_given(s); },
                Piece(setting, setting.is_on_by_default() ? Show::off_flag : Show::flag),
                {setting}) {
  if (!setting.is_on_by_default()) to_add = rules::to_add(setting);
}

Condition valued(const Setting& setting) {
  return {Condition(setting).holds, with_value(setting), {setting}};
}

Condition is(const Setting& setting, const std::string& value) {
  return {[=](S s) { return setting.value(s) == value; }, {setting, " " + value}, {setting}};
}

Condition without(const Condition& condition) {
  return {[holds = condition.holds](S s) { return !holds(s); }, condition.words, condition.reads};
}

Condition any(const std::vector<Condition>& conditions) {
  const auto those_that_hold = [=](S s) {
    std::vector<Words> words;
    for (const Condition& one : conditions)
      if (one.holds(s)) words.push_back(one.words);
    return words;
  };
  return {[=](S s) { return !those_that_hold(s).empty(); },
          [=](S s) { return listed(those_that_hold(s)); }, reads_of(conditions)};
}

Words listed(const std::vector<Words>& items) {
  Words text;
  for (const Words& item : items) text = text + (text.empty() ? "" : ", ") + item;
  return text;
}

Rules::Rules(std::initializer_list<Rules> lists) {
  for (const Rules& rules : lists) add(rules);
}

void Rules::add(const Rules& more) {
  list_.insert(list_.end(), more.list_.begin(), more.list_.end());
}

Rules refuse(const std::vector<Condition>& conditions, Words got, Words fix) {
  const auto all_hold = [=](S s) {
    return std::ranges::all_of(conditions, [&](const Condition& one) { return one.holds(s); });
  };
  return rule(all_hold,
              {conditions[0].words, std::move(got), std::move(fix), reads_of(conditions)});
}

Rules needs(const Condition& one, const Condition& other, const Wording& wording) {
  return refuse({one, without(other)}, got_of("needs ", other, wording),
                fix_of(one, other, wording));
}

Rules excludes(const Condition& one, const Condition& other, const Wording& wording) {
  return refuse({one, other}, got_of("excludes ", other, wording),
                wording.fix.empty() ? "give one of the two" : wording.fix);
}

Rules excludes(const Condition& one, std::initializer_list<Condition> others,
               const Wording& wording) {
  Rules all{};
  for (const Condition& other : others) all.add(excludes(one, other, wording));
  return all;
}

Rules tunes(std::initializer_list<Condition> some, const Condition& other, const Wording& wording) {
  Rules all{};
  for (const Condition& one : some)
    all.add(refuse({one, without(other)}, got_of("has no effect without ", other, wording),
                   fix_of(one, other, wording)));
  return all;
}

Rules idle(std::initializer_list<Condition> some, const Condition& other, const Wording& wording) {
  Rules all{};
  for (const Condition& one : some) {
    const Words fix = (wording.fix.empty() ? "leave " : wording.fix + ", or leave ") + one.words;
    all.add(refuse({one, other}, got_of("has no effect with ", other, wording), fix + " out"));
  }
  return all;
}

Rules divides(const Setting& unit, const Setting& size, const Wording& wording) {
  return Rules([=](S s) -> std::optional<Message> {
    const auto n = static_cast<std::int64_t>(size.number(s).value_or(0)),
               of = static_cast<std::int64_t>(unit.number(s).value_or(0));
    if (of == 0 || n % of == 0) return std::nullopt;
    Message message = indivisible(size, n, unit, of);
    message.got = message.got + wording.why;
    if (!wording.fix.empty()) message.fix = wording.fix;
    return message;
  });
}

Rules at_most(const Setting& limit, const Setting& number, const Wording& wording) {
  return rule([=](S s) { return number.number(s) > limit.number(s) && limit.number(s); },
              {number, Words{value(number), " is above ", with_value(limit)} + wording.why,
               wording.fix.empty() ? Words{"lower ", number} : wording.fix});
}

Rules at_least(const Setting& limit, const Setting& number, const Wording& wording) {
  return rule([=](S s) { return number.number(s) < limit.number(s) && number.number(s); },
              {number, Words{value(number), " is less than ", with_value(limit)} + wording.why,
               wording.fix.empty() ? Words{"raise ", number} : wording.fix});
}

Rules required(const Setting& setting, const std::string& meaning) {
  return rule([=](S s) { return setting.number(s).value_or(0) <= 0; },
              {setting, "is required", {"add ", to_add(setting), ", " + meaning}});
}

Rules rule(const Condition& is_broken, Message message) {
  message.reads.insert(message.reads.end(), is_broken.reads.begin(), is_broken.reads.end());
  return Rules([holds = is_broken.holds, message = std::move(message)](S s) {
    return holds(s) ? std::optional(message) : std::nullopt;
  });
}

Rules rule(const Condition& is_broken, Message (*message)(S)) {
  return when(is_broken, Rules([=](S s) { return std::optional(message(s)); }));
}

Rules reported(std::optional<UserError::Parts> (*mistake)(S), std::vector<Setting> reads) {
  return Rules([mistake, reads = std::move(reads)](S s) -> std::optional<Message> {
    const auto parts = mistake(s);
    if (!parts) return std::nullopt;
    return Message{parts->what, parts->got, parts->fix, reads};
  });
}

Rules when(const Condition& applies, const Rules& rules) {
  Rules all{};
  for (const auto& check : rules.list())
    all.add(Rules([=](S s) {
      auto message = applies.holds(s) ? (*check)(s) : std::nullopt;
      if (message)
        message->reads.insert(message->reads.end(), applies.reads.begin(), applies.reads.end());
      return message;
    }));
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
    if (message && !message->mentions_any(skip, settings)) problems.add(message->text(settings));
  }
  return problems;
}

}  // namespace megatron
