#include "megatron/config/help.h"

#include <unistd.h>

#include <algorithm>

#include "megatron/base/terminal.h"
#include "megatron/base/words.h"
#include "megatron/config/field_values.h"
#include "megatron/config/size_limits.h"

namespace megatron {
namespace {

constexpr int kHelpColumn = 34;

std::string usage_line(const FieldSet& fields, std::string_view command) {
  std::string text = "usage: megatron " + std::string(command);
  for (const Field& field : fields.fields) {
    if (!field.is_positional) continue;
    const std::string name = value_placeholder(field) + (field.is_list ? "..." : "");
    text += field.is_required ? " " + name : " [" + name + "]";
  }
  for (const Field& field : fields.fields) {
    if (field.is_required && !field.is_positional) text += " " + field_usage(field);
  }
  return text + " [flags]";
}

std::string range_text(const Field& field) {
  std::string text;
  if (field.minimum)
    text += (field.minimum_is_excluded ? "above " : "at least ") + number_text(*field.minimum);
  if (field.maximum && *field.maximum < static_cast<double>(kMaxSize))
    text += (text.empty() ? "" : ", ") +
            std::string(field.maximum_is_excluded ? "below " : "at most ") +
            number_text(*field.maximum);
  return text;
}

std::string entry(const Field& field, int width) {
  std::string text = "  " + field_usage(field);
  if (static_cast<int>(text.size()) + 2 > kHelpColumn) {
    text += "\n" + std::string(kHelpColumn, ' ');
  } else {
    text.resize(kHelpColumn, ' ');
  }
  return text + wrap_text(field_help(field), width - kHelpColumn, kHelpColumn) + "\n";
}

/// Converts text to lower case, replaces '_' with '-' and removes leading dashes.
std::string search_form(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('-'), text.size()));
  std::string form = lower_case(text);
  std::ranges::replace(form, '_', '-');
  return form;
}

bool mentions(const Field& field, const std::string& word) {
  const auto holds = [&](const std::string& text) {
    return search_form(text).find(word) != std::string::npos;
  };
  const auto any = [&](const std::vector<std::string>& texts) {
    return std::any_of(texts.begin(), texts.end(), holds);
  };
  return holds(field.name) || holds(field.help) || any(field.aliases) || any(field.off_flags) ||
         any(field.choices);
}

/// Formats the help of a hidden flag.
std::string hidden_entry(const Field& field, int width) {
  const std::string text =
      field.is_refused ? field.help + " (refused unless its value is neutral)" : field.help;
  return "  " + field.flag() + "\n" + std::string(kHelpColumn, ' ') +
         wrap_text(text, width - kHelpColumn, kHelpColumn) + "\n";
}

}  // namespace

std::string search_help(const FieldSet& fields, std::string_view word, bool hidden, int width) {
  if (width <= 0) width = terminal_width(STDOUT_FILENO);
  const std::string form = search_form(word);
  std::string text, hidden_text;
  for (const Field& field : fields.fields) {
    if (form.empty() || !mentions(field, form)) continue;
    if (!field.is_hidden) text += entry(field, width);
    if (field.is_hidden && hidden) hidden_text += hidden_entry(field, width);
  }
  return text + hidden_text;
}

std::string wrap_text(std::string_view text, int width, int indent) {
  std::string out;
  int column = 0;
  while (!text.empty()) {
    const auto end = text.find_first_of(" \n");
    const std::string_view word = text.substr(0, end);
    if (column > 0 && column + 1 + static_cast<int>(word.size()) > width) {
      out += "\n" + std::string(indent, ' ');
      column = 0;
    }
    if (column > 0) out += ' ', ++column;
    out += word;
    column += static_cast<int>(word.size());
    if (end == std::string_view::npos) break;
    if (text[end] == '\n') out += "\n" + std::string(indent, ' '), column = 0;
    text.remove_prefix(end + 1);
  }
  return out;
}

std::string shown_flag(const Field& field) {
  const bool is_on = field.default_values == std::vector<std::string>{"true"};
  return is_on && !field.off_flags.empty() ? "--" + field.off_flags.front() : field.flag();
}

std::vector<std::string> shown_aliases(const Field& field) {
  return shown_flag(field) == field.flag() ? field.aliases : std::vector<std::string>();
}

std::string field_usage(const Field& field) {
  if (field.is_positional) return value_placeholder(field) + (field.is_list ? "..." : "");
  if (field.is_switch()) return shown_flag(field);
  const bool many = field.is_list && !field.is_repeatable && field.value_name != "N,N";
  return field.flag() + " " + value_placeholder(field) + (many ? " ..." : "");
}

bool has_default(const Field& field) {
  if (field.is_required || field.is_switch() || field.default_values.empty()) return false;
  return !field.minimum || number_value(field.default_values[0]) >= *field.minimum;
}

std::string field_limits(const Field& field) {
  std::string text = field.is_required ? "required" : "";
  const auto add = [&](const std::string& fact) { text += (text.empty() ? "" : "; ") + fact; };
  if (const std::string range = range_text(field); !range.empty()) add(range);
  if (field.is_repeatable) add("may be given several times");
  return text;
}

std::string field_help(const Field& field) {
  std::string facts = has_default(field) ? "default: " + join_values(field.default_values) : "";
  const auto add = [&](const std::string& fact) { facts += (facts.empty() ? "" : "; ") + fact; };
  if (const std::string limits = field_limits(field); !limits.empty()) add(limits);
  std::string also;
  for (const std::string& alias : shown_aliases(field)) also += " --" + alias;
  if (!also.empty()) add("also" + also);
  return facts.empty() ? field.help : field.help + " (" + facts + ")";
}

std::string help_text(const FieldSet& fields, std::string_view command, int width) {
  if (width <= 0) width = terminal_width(STDOUT_FILENO);
  std::string text = wrap_text(usage_line(fields, command), width, 8) + "\n";
  if (!fields.about.empty()) text += "\n" + wrap_text(fields.about, width, 0) + "\n";
  std::vector<std::string> groups;
  for (const Field& field : fields.fields) {
    if (!field.is_hidden && std::find(groups.begin(), groups.end(), field.group) == groups.end())
      groups.push_back(field.group);
  }
  for (const std::string& group : groups) {
    text += "\n" + (group.empty() ? "Flags" : group) + ":\n";
    for (const Field& field : fields.fields) {
      if (!field.is_hidden && field.group == group) text += entry(field, width);
    }
  }
  return text + "\n  --help, -h                      show this text\n";
}

}  // namespace megatron
