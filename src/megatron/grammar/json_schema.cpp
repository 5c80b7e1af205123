#include "megatron/grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/grammar/dfa.h"
#include "megatron/grammar/number_range.h"
#include "megatron/grammar/regex_syntax.h"
#include "megatron/grammar/schema_merge.h"
#include "megatron/grammar/text_matcher.h"

namespace megatron {
namespace {

using StateId = Automaton::StateId;

constexpr int kMostSpaces = 20;                // of an indented line
constexpr int kMostNestings = 200;             // of schemas
constexpr std::uint64_t kMostUnits = 100'000;  // characters of a string, elements of an array

// Years are 0001 to 9999.
#define MEGATRON_DATE                                                                          \
  "(((000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d\\d\\d)-((0[1-9]|1[0-2])-(0[1-9]|1\\d|2[0-8])|" \
  "(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31))|"                                            \
  "(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)"
#define MEGATRON_TIME \
  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define MEGATRON_HOST "([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)"
#define MEGATRON_BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"

/// The formats, as regular expressions of whole texts.
const std::map<std::string_view, std::string_view> kFormats{
    {"date", MEGATRON_DATE},
    {"time", MEGATRON_TIME},
    {"date-time", MEGATRON_DATE "T" MEGATRON_TIME},
    {"duration",
     "P((\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)(T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?"
     "|\\d+S))?|T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S)|\\d+W)"},
    {"uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
    {"email", "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@" MEGATRON_HOST "(\\." MEGATRON_HOST ")+"},
    {"hostname", MEGATRON_HOST "(\\." MEGATRON_HOST "){0,3}"},
    {"ipv4", MEGATRON_BYTE "(\\." MEGATRON_BYTE "){3}"},
    {"ipv6",
     "[0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){7}|::([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){0,6})?|"
     "[0-9a-fA-F]{1,4}::([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){0,5})?"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]*://" MEGATRON_HOST "(\\." MEGATRON_HOST ")*(:\\d{1,4})?"
            "(/([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*"
            "(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
            "(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"}};
#undef MEGATRON_DATE
#undef MEGATRON_TIME
#undef MEGATRON_HOST
#undef MEGATRON_BYTE

constexpr std::string_view kInteger = "-?(0|[1-9]\\d*)",
                           kNumber = "-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d{1,2})?",
                           kBoundedNumber = "-?(0|[1-9]\\d*)(\\.\\d{1,15})?";

/// Returns a number as a decimal without an exponent.
std::string decimal_text(const OrderedJson& number) {
  if (number.is_number_integer()) return number.dump();
  std::array<char, 2048> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(),
                                          number.get<double>(), std::chars_format::fixed);
  MEGATRON_CHECK(error == std::errc(), "a float64 has at most 1,100 digits");
  return {text.data(), end};
}

/// Returns the texts that `add` adds behind a state of a new automaton.
template <class Add>
Dfa dfa_of(const Add& add) {
  Automaton automaton;
  const StateId begin = automaton.add_state();
  const StateId end = add(automaton, begin);
  return {automaton, begin, end};
}

Dfa dfa_of_regex(std::string_view pattern, const RegexOptions& options) {
  return dfa_of([&](Automaton& to, StateId at) { return add_regex(to, at, pattern, options); });
}

Dfa intersection(std::span<const Dfa> all) {
  Dfa result = all.front();
  for (const Dfa& one : all.subspan(1)) result = result.intersected(one);
  return result;
}

/// Adds from `least` to `most` parts, each by add(state); std::nullopt: any number.
template <class Add>
StateId add_counted(Automaton& to, StateId at, std::uint64_t least,
                    std::optional<std::uint64_t> most, const Add& add) {
  for (std::uint64_t i = 0; i < least; ++i) at = add(at);
  if (!most) return to.add_any_number(at, add);
  const StateId end = to.add_state();
  to.add_skip(at, end);
  for (std::uint64_t i = least; i < *most; ++i) to.add_skip(at = add(at), end);
  return end;
}

/// Adds the rules of a schema's values. Equal schemas share a rule.
class SchemaBuilder {
 public:
  /// `num_enums`: of the enums whose values the schema is to check.
  SchemaBuilder(Automaton& to, const OrderedJson& root, int num_enums = 0)
      : to_(to), root_(root), reader_(root), num_enums_(num_enums) {
    space_ = to_.add_rule();
    const auto [begin, end] = to_.rule(space_);
    to_.add_skip(begin, end);
    to_.add_edge(begin, end, ' ', ' ');
    const StateId line = to_.add_literal(begin, "\n");
    to_.add_skip(add_counted(to_, line, 0, kMostSpaces,
                             [this](StateId at) { return to_.add_literal(at, " "); }),
                 end);
  }

  /// Returns the rule of a schema, which may be one that is not complete yet.
  std::int32_t rule_of(const OrderedJson& schema, const std::string& place) {
    const OrderedJson own = reader_.keywords(schema, place);
    const std::string key = own.dump();
    const auto [entry, is_new] = rules_.try_emplace(key, 0);
    if (!is_new) return entry->second;
    const std::int32_t rule = entry->second = to_.add_rule();
    if (++depth_ > kMostNestings)
      throw UserError({"the JSON schema, " + place, "it is nested too deep", ""});
    to_.add_skip(add(to_.rule(rule).begin, own, place), to_.rule(rule).end);
    --depth_;
    return rule;
  }

 private:
  /// Adds the values of a schema's keywords.
  StateId add(StateId at, const OrderedJson& own, const std::string& place) {
    if (own.size() == 1 && own.contains("$ref"))
      return to_.add_call(at, rule_of(reader_.resolve(own.at("$ref"), place), place));
    if (own.contains("$ref") || own.contains("allOf"))
      return add(at, reader_.flatten(own, place), place);
    for (const char* key : {"anyOf", "oneOf"})
      if (own.contains(key)) return add_branches(at, own, key, place);
    if (own.contains("enum")) return add_enum(at, own, place);
    const StateId end = to_.add_state();
    for (const std::string& type : types_of_schema(own))
      to_.add_skip(add_type(at, type, own, place), end);
    return end;
  }

  StateId add_branches(StateId at, OrderedJson own, const std::string& key,
                       const std::string& place) {
    const OrderedJson branches = own.at(key);
    own.erase(key);
    const std::string inside = place + "/" + key;
    if (key == "oneOf") {
      std::vector<OrderedJson> flat;
      for (const OrderedJson& branch : branches) {
        flat.push_back(reader_.merge(own, reader_.flatten(branch, inside), inside));
        for (std::size_t i = 0; i + 1 < flat.size(); ++i)
          if (!reader_.are_disjoint(flat[i], flat.back(), inside))
            refuse_keyword(place, key,
                           "a value may fit several branches: they are not told apart by type, by "
                           "enum, or by that of a required member");
      }
    }
    const StateId end = to_.add_state();
    for (const OrderedJson& branch : branches) {
      const OrderedJson all =
          own.empty() ? branch : reader_.merge(own, reader_.flatten(branch, inside), inside);
      to_.add_skip(to_.add_call(at, rule_of(all, inside)), end);
    }
    return end;
  }

  /// Adds the values of the enum that the other keywords allow.
  StateId add_enum(StateId at, OrderedJson own, const std::string& place) {
    const OrderedJson values = own.at("enum");
    own.erase("enum");
    std::optional<TextMatcher> others;
    if (!own.empty() && !values.empty()) {
      if (num_enums_ > 1) refuse_keyword(place, "enum", "it is inside a condition of another enum");
      Automaton automaton;
      const std::int32_t rule = SchemaBuilder(automaton, root_, num_enums_ + 1).rule_of(own, place);
      others.emplace(std::move(automaton), rule, Automaton::Bytes().set());
    }
    const StateId end = to_.add_state();
    for (const OrderedJson& value : values) {
      const std::string text = value.dump();
      if (others) {
        const TextMatcher::SetId set = others->step(others->begin(), text);
        if (set == TextMatcher::kNone || !others->set(set).is_complete) continue;
      }
      to_.add_skip(to_.add_literal(at, text), end);
    }
    return end;
  }

  StateId add_type(StateId at, const std::string& type, const OrderedJson& own,
                   const std::string& place) {
    if (type == "null") return to_.add_literal(at, "null");
    if (type == "boolean") return add_regex(to_, at, "true|false");
    if (type == "string") return add_string(at, own, place);
    if (type == "array") return add_array(at, own, place);
    if (type == "object") return add_object(at, own, place);
    return add_number(at, own, type == "integer");
  }

  StateId add_number(StateId at, const OrderedJson& own, bool is_integer) {
    std::vector<Dfa> conditions;
    for (const auto& [key, value] : own.items()) {
      if (!key.ends_with("imum")) continue;
      const NumberBound bound{.decimal = decimal_text(value),
                              .is_lower = key.ends_with("inimum"),
                              .is_excluded = key.starts_with("ex")};
      conditions.push_back(dfa_of_regex(number_range_regex(bound), {}));
    }
    if (conditions.empty()) return add_regex(to_, at, is_integer ? kInteger : kNumber);
    conditions.push_back(dfa_of_regex(is_integer ? kInteger : kBoundedNumber, {}));
    return intersection(conditions).add_to(to_, at);
  }

  /// Adds a character of a string, written in any way.
  StateId add_any_character(StateId at) {
    constexpr std::string_view kEscapes =
        "\\\\([\"\\\\/bfnrt]|u([0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}|"
        "[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}))|[^\\x00-\\x1f\"\\\\]";
    return add_regex(to_, at, kEscapes);
  }

  static std::uint64_t count_of(const OrderedJson& own, const char* key, std::uint64_t otherwise,
                                const std::string& place) {
    const std::uint64_t count = own.contains(key) ? own.at(key).get<std::uint64_t>() : otherwise;
    if (own.contains(key) && count > kMostUnits)
      refuse_keyword(place, key, "it is more than " + std::to_string(kMostUnits));
    return count;
  }
  static std::optional<std::uint64_t> most_of(const OrderedJson& own, const char* key,
                                              const std::string& place) {
    if (!own.contains(key)) return std::nullopt;
    return count_of(own, key, 0, place);
  }

  /// Returns what strings are, as they are written with few escapes, by each condition but none.
  static std::vector<Dfa> conditions_of_string(const OrderedJson& own, const std::string& place) {
    constexpr auto kForm = TextForm::json_string;
    std::vector<Dfa> conditions;
    if (own.contains("pattern")) {
      const OrderedJson& pattern = own.at("pattern");
      for (const OrderedJson& one : pattern.is_array() ? pattern : OrderedJson::array({pattern}))
        conditions.push_back(
            dfa_of_regex(one.get<std::string>(), {.form = kForm, .searches = true}));
    }
    if (own.contains("format")) {
      const auto found = kFormats.find(own.at("format").get<std::string>());
      if (found == kFormats.end())
        refuse_keyword(place, "format",
                       "'" + own.at("format").get<std::string>() + "' is not supported");
      conditions.push_back(dfa_of_regex(found->second, {.form = kForm}));
    }
    if (own.contains("minLength") || own.contains("maxLength")) {
      const std::uint64_t least = count_of(own, "minLength", 0, place);
      const auto most = most_of(own, "maxLength", place);
      conditions.push_back(dfa_of([&](Automaton& to, StateId at) {
        if (most && *most < least) return to.add_state();
        return add_counted(to, at, least, most, [&](StateId from) {
          return to.add_characters(from, CodePoints::all(), kForm);
        });
      }));
    }
    return conditions;
  }

  StateId add_string(StateId at, const OrderedJson& own, const std::string& place) {
    at = to_.add_literal(at, "\"");
    if (own.contains("pattern") || own.contains("format"))
      return to_.add_literal(intersection(conditions_of_string(own, place)).add_to(to_, at), "\"");
    const std::uint64_t least = count_of(own, "minLength", 0, place);
    const auto most = most_of(own, "maxLength", place);
    if (most && *most < least) return to_.add_state();
    at =
        add_counted(to_, at, least, most, [this](StateId from) { return add_any_character(from); });
    return to_.add_literal(at, "\"");
  }

  StateId add_space(StateId at) { return to_.add_call(at, space_); }
  StateId add_comma(StateId at) { return add_space(to_.add_literal(at, ",")); }

  StateId add_array(StateId at, const OrderedJson& own, const std::string& place) {
    const OrderedJson prefix =
        own.contains("prefixItems") ? own.at("prefixItems") : OrderedJson::array();
    const OrderedJson rest = own.contains("items") ? own.at("items") : OrderedJson(true);
    const std::uint64_t least = count_of(own, "minItems", 0, place);
    const auto most = most_of(own, "maxItems", place);
    const std::int32_t rule_of_rest = rule_of(rest, place + "/items");
    const StateId end = to_.add_state();
    at = add_space(to_.add_literal(at, "["));
    const auto close = [&](StateId from, std::uint64_t count) {
      if (count >= least && (!most || count <= *most))
        to_.add_skip(to_.add_literal(count == 0 ? from : add_space(from), "]"), end);
    };
    close(at, 0);
    // Elements that have places of their own; any number of others follows.
    const std::uint64_t placed =
        std::max<std::uint64_t>({1, prefix.size(), least, most.value_or(0)});
    for (std::uint64_t i = 0; i < placed && !(most && i >= *most); ++i) {
      if (i > 0) at = add_comma(at);
      at = to_.add_call(at, i < prefix.size() ? rule_of(prefix[static_cast<std::size_t>(i)],
                                                        place + "/prefixItems")
                                              : rule_of_rest);
      if (!most && i + 1 == placed)
        at = to_.add_any_number(
            at, [&](StateId from) { return to_.add_call(add_comma(from), rule_of_rest); });
      close(at, i + 1);
    }
    return end;
  }

  struct Member {
    std::string key;
    OrderedJson value;
    bool is_required;
  };
  struct OtherMembers {
    Dfa keys;  ///< between the quotes
    OrderedJson value;
  };

  /// Returns the members that have names, and those that have not.
  std::pair<std::vector<Member>, std::vector<OtherMembers>> members_of(const OrderedJson& own,
                                                                       const std::string& place) {
    const auto part = [&](const char* key) {
      return own.contains(key) ? own.at(key) : OrderedJson::object();
    };
    const OrderedJson properties = part("properties"), patterns = part("patternProperties");
    const bool is_open = properties.empty() && patterns.empty() && !own.contains("properties");
    const OrderedJson rest = own.contains("additionalProperties") ? own.at("additionalProperties")
                                                                  : OrderedJson(is_open);
    std::set<std::string> required;
    std::vector<Member> members;
    if (own.contains("required")) required = own.at("required").get<std::set<std::string>>();
    for (const auto& [key, value] : properties.items())
      members.push_back({key, value, required.contains(key)});
    std::vector<std::pair<Dfa, OrderedJson>> by_pattern;
    for (const auto& [pattern, value] : patterns.items())
      by_pattern.emplace_back(
          dfa_of_regex(pattern, {.form = TextForm::json_string, .searches = true}), value);
    for (const std::string& key : required) {
      if (properties.contains(key)) continue;
      const bool has_pattern = std::ranges::any_of(by_pattern, [&](const auto& one) {
        return one.first.accepts(written_text(key, TextForm::json_string));
      });
      const bool is_any = has_pattern || !own.contains("additionalProperties");
      members.push_back({key, is_any ? OrderedJson(true) : rest, true});
    }
    std::optional<Dfa> names;  // that keys have
    if (own.contains("propertyNames")) {
      const OrderedJson flat = reader_.flatten(own.at("propertyNames"), place + "/propertyNames");
      for (const auto& [key, value] : flat.items())
        if (key != "type" && key != "pattern" && key != "format" && !key.ends_with("Length"))
          refuse_keyword(place + "/propertyNames", key);
      if (const auto all = conditions_of_string(flat, place); !all.empty())
        names = intersection(all);
    }
    for (Member& member : members) {
      const std::string written = written_text(member.key, TextForm::json_string);
      for (const auto& [keys, value] : by_pattern)
        if (keys.accepts(written))
          member.value = {{"allOf", OrderedJson::array({member.value, value})}};
      if (names && !names->accepts(written)) member.value = false;
    }
    std::vector<OtherMembers> others;
    if (by_pattern.empty() && rest == OrderedJson(false)) return {members, others};
    const Dfa any = dfa_of([&](Automaton& to, StateId at) {
      return to.add_any_number(at, [&](StateId from) {
        return to.add_characters(from, CodePoints::all(), TextForm::json_string);
      });
    });
    const Dfa named = dfa_of([&](Automaton& to, StateId at) {
      const StateId end = to.add_state();
      for (const Member& member : members)
        to.add_skip(to.add_literal(at, written_text(member.key, TextForm::json_string)), end);
      return end;
    });
    const auto add_others = [&](const Dfa& keys, const OrderedJson& value) {
      Dfa free = members.empty() ? keys : keys.without(named);
      if (names) free = free.intersected(*names);
      others.push_back({std::move(free), value});
    };
    for (std::size_t i = 0; i < by_pattern.size(); ++i) {
      Dfa keys = by_pattern[i].first;
      for (std::size_t k = 0; k < by_pattern.size(); ++k)
        if (k != i) keys = keys.without(by_pattern[k].first);
      add_others(keys, by_pattern[i].second);
    }
    if (rest == OrderedJson(false)) return {members, others};
    Dfa keys = any;
    for (const auto& [of_pattern, value] : by_pattern) keys = keys.without(of_pattern);
    add_others(keys, rest);
    return {members, others};
  }

  StateId add_object(StateId at, const OrderedJson& own, const std::string& place) {
    const auto [members, others] = members_of(own, place);
    const auto add_value = [&](StateId from, const OrderedJson& value, const std::string& key) {
      const StateId colon = to_.add_literal(from, ":"), begin = to_.add_state();
      to_.add_skip(colon, begin);
      to_.add_edge(colon, begin, ' ', ' ');
      return to_.add_call(begin,
                          rule_of(value, place + "/" + written_text(key, TextForm::json_string)));
    };
    const StateId end = to_.add_state();
    // Where no member is before, which a required one ends, and where one is.
    const StateId none = add_space(to_.add_literal(at, "{"));
    bool may_be_none = true;
    std::optional<StateId> some;
    const auto begin_member = [&] {
      const StateId begin = to_.add_state();
      if (may_be_none) to_.add_skip(none, begin);
      if (some) to_.add_skip(add_comma(*some), begin);
      return begin;
    };
    for (const auto& [key, value, is_required] : members) {
      const StateId begin =
          to_.add_literal(begin_member(), "\"" + written_text(key, TextForm::json_string) + "\"");
      const StateId behind = to_.add_state();
      to_.add_skip(add_value(begin, value, "properties/" + key), behind);
      if (is_required)
        may_be_none = false;
      else if (some)
        to_.add_skip(*some, behind);
      some = behind;
    }
    if (!others.empty()) {
      const StateId behind = to_.add_state();
      if (some) to_.add_skip(*some, behind);
      some = behind;
      const StateId begin = begin_member();
      for (const OtherMembers& other : others) {
        const StateId key = other.keys.add_to(to_, to_.add_literal(begin, "\""));
        to_.add_skip(add_value(to_.add_literal(key, "\""), other.value, "additionalProperties"),
                     behind);
      }
    }
    if (may_be_none) to_.add_skip(to_.add_literal(none, "}"), end);
    if (some) to_.add_skip(to_.add_literal(add_space(*some), "}"), end);
    return end;
  }

  Automaton& to_;
  const OrderedJson& root_;
  SchemaReader reader_;
  std::int32_t space_;
  std::map<std::string, std::int32_t> rules_;  ///< by the keywords of the schema
  int num_enums_, depth_ = 0;
};

}  // namespace

std::int32_t add_json_schema(Automaton& automaton, const std::string& schema) {
  parse_json_unique_keys(schema, "the JSON schema");
  const OrderedJson root = OrderedJson::parse(schema);
  return SchemaBuilder(automaton, root).rule_of(root, "#");
}

}  // namespace megatron
