#include "megatron/tokenizers/chat/text_methods.h"

#include <limits>

#include "megatron/tokenizers/chat/arguments.h"
#include "megatron/tokenizers/chat/operators.h"
#include "megatron/tokenizers/chat/python_text.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::chat {
namespace {

constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

Value text_of(std::string_view text) { return Value::text(std::string(text)); }

template <std::string (*function)(std::string_view)>
Value map_text(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("a method of str", std::move(arguments), {});
  meter.charge_bytes(self.as_text().size());
  return Value::text(function(self.as_text()));
}

template <Side side>
Value strip_text(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("strip", std::move(arguments), {"chars"});
  meter.charge_bytes(self.as_text().size());
  if (!bound.has(0) || bound.value(0).is_none()) return text_of(strip(self.as_text(), side));
  const std::string set = bound.text(0, "");
  meter.charge_bytes(self.as_text().size() * std::min<std::size_t>(set.size(), 32));
  return text_of(strip(self.as_text(), set, side));
}

Value list_of(const std::vector<std::string_view>& parts) {
  Values items;
  for (const std::string_view part : parts) items.push_back(text_of(part));
  return Value::list(std::move(items));
}

template <bool from_right>
Value split_text(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("split", std::move(arguments), {"sep", "maxsplit"});
  meter.charge_bytes(32 * self.as_text().size());
  const std::int64_t limit = bound.integer(1, -1);
  if (!bound.has(0) || bound.value(0).is_none())
    return list_of(split_at_space(self.as_text(), limit, from_right));
  const std::string separator = bound.text(0, "");
  if (separator.empty()) throw TemplateError("empty separator");
  return list_of(split_at(self.as_text(), separator, limit, from_right));
}

Value split_text_lines(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("splitlines", std::move(arguments), {"keepends"});
  meter.charge_bytes(32 * self.as_text().size());
  require_defined(bound.value(0));
  return list_of(split_lines(self.as_text(), bound.truth(0, false)));
}

/// The part of a text between two Python places, and where it begins.
struct Part {
  std::string_view text;
  std::size_t first_byte;
};
std::optional<Part> part_between(const Value& self, const Bound& bound, std::size_t first,
                                 Meter& meter) {
  const std::string_view text = self.as_text();
  meter.charge_bytes(text.size());
  if (!bound.has(first) && !bound.has(first + 1)) return Part{text, 0};
  const auto length = static_cast<std::int64_t>(count_characters(text));
  const auto place = [&](std::size_t index, std::int64_t otherwise) {
    if (!bound.has(index) || bound.value(index).is_none()) return otherwise;
    const std::int64_t value = bound.integer(index, otherwise);
    return value < 0 ? (value < -length ? 0 : value + length) : value;
  };
  const std::int64_t begin = place(first, 0), end = std::min(place(first + 1, kEnd), length);
  if (begin > end) return std::nullopt;
  const std::size_t byte = byte_of_character(text, static_cast<std::size_t>(begin));
  const std::size_t last = byte_of_character(text, static_cast<std::size_t>(end));
  return Part{text.substr(byte, last - byte), byte};
}

template <bool at_end>
Value text_has_end(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound(at_end ? "endswith" : "startswith", std::move(arguments),
                    {"prefix", "start", "end"}, 1);
  const auto part = part_between(self, bound, 1, meter);
  const Value wanted = bound.value(0);
  require_defined(wanted);
  const Values candidates = wanted.is(Kind::tuple) ? wanted.items() : Values{wanted};
  for (const Value& candidate : candidates) {
    if (!candidate.is_text())
      throw TemplateError(std::string(at_end ? "endswith" : "startswith") +
                          " first arg must be str or a tuple of str, not " + type_name(candidate));
    const std::string& end = candidate.as_text();
    if (part && (at_end ? part->text.ends_with(end) : part->text.starts_with(end)))
      return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool from_right, bool must_exist>
Value find_text(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("find", std::move(arguments), {"sub", "start", "end"}, 1);
  const std::string wanted = bound.text(0, "");
  if (const auto part = part_between(self, bound, 1, meter)) {
    const std::size_t at =
        from_right ? find_last_part(part->text, wanted) : find_part(part->text, wanted);
    if (at != std::string_view::npos)
      return Value::integer(static_cast<std::int64_t>(
          count_characters(std::string_view(self.as_text()).substr(0, part->first_byte + at))));
  }
  if (must_exist) throw TemplateError("substring not found");
  return Value::integer(-1);
}

Value count_text(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("count", std::move(arguments), {"sub", "start", "end"}, 1);
  const auto part = part_between(self, bound, 1, meter);
  return Value::integer(part ? count_parts(part->text, bound.text(0, "")) : 0);
}

Value replace_text(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("replace", std::move(arguments), {"old", "new", "count"}, 2);
  return Value::text(replace_metered(self.as_text(), bound.text(0, ""), bound.text(1, ""),
                                     bound.integer(2, -1), meter));
}

Value join_items(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("join", std::move(arguments), {"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const Value& item : items_of(bound.value(0), meter)) {
    if (!item.is_text())
      throw TemplateError("join: sequence items must be str, not " + type_name(item));
    if (!first) out += self.as_text();
    first = false;
    out += item.as_text();
    meter.charge_bytes(item.as_text().size() + self.as_text().size());
    meter.check_size(out.size());
  }
  return Value::text(std::move(out));
}

template <TextClass which>
Value has_class(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("a method of str", std::move(arguments), {});
  meter.charge_bytes(self.as_text().size());
  return Value::boolean(is_class(self.as_text(), which));
}

template <bool from_right>
Value partition_text(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("partition", std::move(arguments), {"sep"}, 1);
  const std::string separator = bound.text(0, "");
  if (separator.empty()) throw TemplateError("empty separator");
  const std::string& text = self.as_text();
  meter.charge_bytes(text.size());
  const std::size_t at = from_right ? find_last_part(text, separator) : find_part(text, separator);
  const Value empty = Value::text("");
  if (at == std::string::npos)
    return Value::tuple(from_right ? Values{empty, empty, self} : Values{self, empty, empty});
  return Value::tuple({Value::text(text.substr(0, at)), Value::text(separator),
                       Value::text(text.substr(at + separator.size()))});
}

template <bool at_end>
Value remove_end(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("removeprefix", std::move(arguments), {"prefix"}, 1);
  const std::string end = bound.text(0, "");
  const std::string& text = self.as_text();
  meter.charge_bytes(text.size());
  if (at_end)
    return text.ends_with(end) ? Value::text(text.substr(0, text.size() - end.size())) : self;
  return text.starts_with(end) ? Value::text(text.substr(end.size())) : self;
}

struct Entry {
  std::string_view name;
  TextMethod method;
};

constexpr Entry kMethods[] = {
    {"capitalize", map_text<capitalize>},
    {"count", count_text},
    {"endswith", text_has_end<true>},
    {"find", find_text<false, false>},
    {"index", find_text<false, true>},
    {"isalnum", has_class<TextClass::alnum>},
    {"isalpha", has_class<TextClass::alpha>},
    {"isdigit", has_class<TextClass::digit>},
    {"islower", has_class<TextClass::lower>},
    {"isspace", has_class<TextClass::space>},
    {"isupper", has_class<TextClass::upper>},
    {"join", join_items},
    {"lower", map_text<lower>},
    {"lstrip", strip_text<Side::left>},
    {"partition", partition_text<false>},
    {"removeprefix", remove_end<false>},
    {"removesuffix", remove_end<true>},
    {"replace", replace_text},
    {"rfind", find_text<true, false>},
    {"rindex", find_text<true, true>},
    {"rpartition", partition_text<true>},
    {"rsplit", split_text<true>},
    {"rstrip", strip_text<Side::right>},
    {"split", split_text<false>},
    {"splitlines", split_text_lines},
    {"startswith", text_has_end<false>},
    {"strip", strip_text<Side::both>},
    {"title", map_text<title>},
    {"upper", map_text<upper>},
};

}  // namespace

TextMethod text_method(std::string_view name) {
  const auto* found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                   [&](const Entry& entry) { return entry.name == name; });
  return found == std::end(kMethods) ? nullptr : found->method;
}

std::string replace_metered(std::string_view text, std::string_view old, std::string_view by,
                            std::int64_t limit, Meter& meter) {
  meter.charge_bytes(text.size());
  const auto found = static_cast<std::size_t>(count_parts(text, old));
  const std::size_t times = limit < 0 ? found : std::min(found, static_cast<std::size_t>(limit));
  if (!by.empty() && times > meter.limits().value_bytes / by.size()) meter.check_size(SIZE_MAX);
  meter.charge_bytes(text.size() + times * by.size());
  return replace_all(text, old, by, limit);
}

}  // namespace megatron::chat
