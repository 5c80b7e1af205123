// Filters on text, and to JSON.
#include "megatron/tokenizers/chat/arguments.h"
#include "megatron/tokenizers/chat/builtins.h"
#include "megatron/tokenizers/chat/operators.h"
#include "megatron/tokenizers/chat/printing.h"
#include "megatron/tokenizers/chat/python_format.h"
#include "megatron/tokenizers/chat/python_text.h"
#include "megatron/tokenizers/chat/text_methods.h"

namespace megatron::chat {
namespace {

/// Returns the input as text, charged for one pass over it.
std::string text_of(Evaluator& evaluator, const Value& input) {
  std::string text = to_text(input, evaluator.meter());
  evaluator.meter().charge_bytes(text.size());
  return text;
}

template <std::string (*function)(std::string_view)>
Value map_text(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("map_text", std::move(arguments), {});
  return Value::text(function(text_of(evaluator, input)));
}

/// Jinja's own title case: a word begins after white space or one of -({[<.
std::string title_words(std::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    const std::size_t first = byte_of_character(word, 1);
    out += upper(std::string_view(word).substr(0, first));
    out += lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (const std::string_view character : characters_of(text)) {
    const bool separates = strip(character, Side::both).empty() ||
                           std::string_view("-({[<").find(character) != std::string_view::npos;
    if (!separates) {
      word += character;
      continue;
    }
    flush();
    out += character;
  }
  flush();
  return out;
}

Value trim(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("trim", std::move(arguments), {"chars"});
  const std::string text = text_of(evaluator, input);
  if (!bound.has(0) || bound.value(0).is_none())
    return Value::text(std::string(strip(text, Side::both)));
  return Value::text(std::string(strip(text, bound.text(0, ""), Side::both)));
}

Value replace(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("replace", std::move(arguments), {"old", "new", "count"}, 2);
  Meter& meter = evaluator.meter();
  const std::int64_t limit = bound.value(2).is_none() ? -1 : bound.integer(2, -1);
  return Value::text(replace_metered(text_of(evaluator, input), to_text(bound.value(0), meter),
                                     to_text(bound.value(1), meter), limit, meter));
}

Value string(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("string", std::move(arguments), {});
  return input.is_text() ? input : Value::text(to_text(input, evaluator.meter()));
}

Value safe(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("safe", std::move(arguments), {});
  return Value::markup(to_text(input, evaluator.meter()));
}

Value escape(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("escape", std::move(arguments), {});
  return input.is_markup() ? input : Value::markup(escape_html(text_of(evaluator, input)));
}

Value format(Evaluator& evaluator, const Value& input, Arguments arguments) {
  if (!arguments.positional.empty() && !arguments.keywords.empty())
    throw TemplateError("can't handle positional and keyword arguments at the same time");
  Dict named;
  for (auto& [name, value] : arguments.keywords)
    named.set(Value::text(name), value, evaluator.meter());
  const Value values = arguments.keywords.empty() ? Value::tuple(arguments.positional)
                                                  : Value::dict(std::move(named));
  return Value::text(format_percent(text_of(evaluator, input), values, evaluator.meter()));
}

Value indent(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("indent", std::move(arguments), {"width", "first", "blank"});
  Meter& meter = evaluator.meter();
  require_defined(input);
  if (!input.is_text()) throw TemplateError("indent needs a str, not " + type_name(input));
  const Value width = bound.value(0, Value::integer(4));
  if (!width.is_text() && bound.integer(0, 4) > (1 << 20))
    throw TemplateError("indent: the width is too large");
  const std::string margin =
      width.is_text()
          ? width.as_text()
          : std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, bound.integer(0, 4))),
                        ' ');
  const std::string text = text_of(evaluator, input) + "\n";
  const bool indents_blank = bound.truth(2, false);
  std::string out;
  bool is_first = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!is_first) out += '\n';
    if (is_first ? bound.truth(1, false) : indents_blank || !line.empty()) out += margin;
    is_first = false;
    out += line;
    meter.charge_bytes(margin.size());
    meter.check_size(out.size());
  }
  return Value::text(std::move(out));
}

/// transformers' own tojson, which is json.dumps() without HTML escapes.
Value to_json_filter(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("tojson", std::move(arguments),
                    {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.truth(0, false);
  style.sort_keys = bound.truth(3, false);
  const Value indent = bound.value(1);
  if (indent.is_text()) {
    style.indent = indent.as_text();
  } else if (!indent.is_none()) {
    const std::int64_t width = bound.integer(1, 0);
    if (width > (1 << 20)) throw TemplateError("tojson: the indent is too large");
    style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, width)), ' ');
  }
  if (style.indent) style.between_items = ",";
  if (const Value separators = bound.value(2); !separators.is_none()) {
    const Values parts = items_of(separators, evaluator.meter());
    if (parts.size() != 2 || !parts[0].is_text() || !parts[1].is_text())
      throw TemplateError("tojson: separators must be two strings");
    style.between_items = parts[0].as_text();
    style.after_key = parts[1].as_text();
  }
  return Value::text(to_json(input, style, evaluator.meter()));
}

constexpr FilterEntry kFilters[] = {
    {"capitalize", map_text<capitalize>},
    {"e", escape},
    {"escape", escape},
    {"format", format},
    {"indent", indent},
    {"lower", map_text<lower>},
    {"replace", replace},
    {"safe", safe},
    {"string", string},
    {"title", map_text<title_words>},
    {"tojson", to_json_filter},
    {"trim", trim},
    {"upper", map_text<upper>},
};

}  // namespace

Filter text_filter(std::string_view name) { return find_in(kFilters, name); }

Filter find_filter(std::string_view name) {
  for (const auto find : {text_filter, sequence_filter, selection_filter, number_filter})
    if (const Filter filter = find(name)) return filter;
  return nullptr;
}

}  // namespace megatron::chat
