#include "megatron/config/rule.h"

#include <algorithm>

#include "megatron/config/help.h"

namespace megatron {
namespace rules {
namespace {

/// Refuses `one` if `holds`, which is that `other` holds or does not: "one: verb other".
Rules pair_rule(const Condition& one, const Condition& holds, const char* verb,
                const Condition& other, const Wording& wording, const Words& fix) {
  return refuse({one, holds}, verb + other.words + wording.why,
                wording.fix.empty() ? fix : wording.fix);
}

Words add_or_leave_out(const Condition& other, const Condition& one) {
  return "add " + other.to_add + ", or leave " + one.words + " out";
}

Rules noted(std::initializer_list<Condition> some, const Condition& holds, const Words& remark,
            const Wording& wording) {
  const Words fix = wording.fix.empty() ? Words() : "; " + wording.fix;
  Rules all{};
  for (const Condition& one : some) all.add(note({one, holds}, remark + wording.why + fix));
  return all;
}

Rules limit_rule(const Condition& is_beyond, const Setting& number, const char* relation,
                 const Setting& limit, const Wording& wording, const char* verb) {
  return rule(is_beyond, {number, Words{value(number), relation, with_value(limit)} + wording.why,
                          wording.fix.empty() ? Words{verb, number} : wording.fix});
}

std::vector<Setting> reads_of(const std::vector<Condition>& conditions) {
  std::vector<Setting> all;
  for (const Condition& one : conditions) all.insert(all.end(), one.reads.begin(), one.reads.end());
  return all;
}

Condition all_of(const std::vector<Condition>& conditions) {
  return [=](S s) {
    return std::ranges::all_of(conditions, [&](const Condition& one) { return one.holds(s); });
  };
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
    if (part.setting) all += part.show(*part.setting, settings);
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

Piece value(const Setting& setting) {
  return {setting, [](const Setting& shown, S s) { return shown.value(s); }};
}

Piece with_value(const Setting& setting) {
  return {setting, [](const Setting& shown, S s) { return shown.flag() + " " + shown.value(s); }};
}

Piece to_add(const Setting& setting) {
  return {setting, [](const Setting& shown, S) { return field_usage(shown.field()); }};
}

Condition::Condition(const Setting& setting)
    : Condition([=](S s) { return setting.is_given(s); },
                setting.is_on_by_default() ? rules::to_add(setting) : Piece(setting), {setting}) {
  to_add = rules::to_add(setting);
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
  const auto words = [=](S s) {
    Words all;
    for (const Condition& one : conditions)
      if (one.holds(s)) all = all + (all.empty() ? "" : ", ") + one.words;
    return all;
  };
  const auto one_holds = [=](S s) {
    return std::ranges::any_of(conditions, [&](const Condition& one) { return one.holds(s); });
  };
  return {one_holds, words, reads_of(conditions)};
}

Rules::Rules(std::initializer_list<Rules> lists) {
  for (const Rules& rules : lists) add(rules);
}

void Rules::add(const Rules& more) {
  list_.insert(list_.end(), more.list_.begin(), more.list_.end());
}

Rules refuse(const std::vector<Condition>& conditions, Words got, Words fix) {
  return rule(all_of(conditions),
              {conditions[0].words, std::move(got), std::move(fix), reads_of(conditions)});
}

Rules note(const std::vector<Condition>& conditions, Words remark) {
  return rule(all_of(conditions),
              {conditions[0].words, std::move(remark), {}, reads_of(conditions), true});
}

Rules needs(const Condition& one, const Condition& other, const Wording& wording) {
  return pair_rule(one, without(other), "needs ", other, wording, add_or_leave_out(other, one));
}

Rules excludes(const Condition& one, const Condition& other, const Wording& wording) {
  return pair_rule(one, other, "excludes ", other, wording, "give one of the two");
}

Rules excludes(const Condition& one, std::initializer_list<Condition> others,
               const Wording& wording) {
  Rules all{};
  for (const Condition& other : others) all.add(excludes(one, other, wording));
  return all;
}

Rules tunes(std::initializer_list<Condition> some, const Condition& other, const Wording& wording) {
  return noted(some, without(other), "without effect: there is no " + other.words, wording);
}

Rules idle(std::initializer_list<Condition> some, const Condition& other, const Wording& wording) {
  return noted(some, other, "without effect with " + other.words, wording);
}

Rules divides(const Setting& unit, const Setting& size, const Wording& wording) {
  return Rules([=](S s) -> std::optional<Message> {
    const auto n = static_cast<std::int64_t>(size.number(s).value_or(0)),
               of = static_cast<std::int64_t>(unit.number(s).value_or(0));
    if (of == 0 || n % of == 0) return std::nullopt;
    const Words fix = {"use ",  unit, " ", largest_divisor(n, of),
                       ", or ", size, " ", multiples_near(n, of)};
    return Message{size, Words{n, " is no multiple of ", unit, " ", of} + wording.why,
                   wording.fix.empty() ? fix : wording.fix};
  });
}

Rules at_most(const Setting& limit, const Setting& number, const Wording& wording) {
  const auto is_above = [=](S s) { return number.number(s) > limit.number(s) && limit.number(s); };
  return limit_rule(is_above, number, " is above ", limit, wording, "lower ");
}

Rules at_least(const Setting& limit, const Setting& number, const Wording& wording) {
  const auto is_below = [=](S s) { return number.number(s) < limit.number(s) && number.number(s); };
  return limit_rule(is_below, number, " is less than ", limit, wording, "raise ");
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

}  // namespace rules

Problems evaluate(const Rules& rules, const Settings& settings, const FieldNames& skip,
                  const FieldNames* noted) {
  Problems problems;
  for (const auto& check : rules.list()) {
    const auto message = (*check)(settings);
    if (!message || message->mentions_any(skip, settings)) continue;
    const UserError::Parts parts = message->text(settings);
    if (message->is_note && noted && !message->what.mentions_any(*noted, settings)) continue;
    message->is_note ? problems.note(parts.what, parts.got) : problems.add(parts);
  }
  return problems;
}

}  // namespace megatron
