#include "megatron/config/reference_docs.h"

#include <algorithm>
#include <vector>

#include "megatron/config/field_values.h"
#include "megatron/config/help.h"
#include "megatron/config/known_flags.h"
#include "megatron/config/run_settings.h"

namespace megatron {
namespace {

/// Escapes text for a cell of a Markdown table.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*' || c == '_') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string code(const std::string& text) {
  std::string out = "`";
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out + "`";
}

std::string field_row(const Field& field) {
  std::string flags = code(field_usage(field));
  for (const std::string& alias : shown_aliases(field)) flags += ", " + code("--" + alias);
  const std::string key = field.is_positional ? "" : code(field.name);
  const std::string value = field.is_switch()    ? field.default_values[0]
                            : has_default(field) ? join_values(field.default_values)
                                                 : "";
  const std::string limits = field_limits(field);
  return "| " + flags + " | " + key + " | " + cell(value) + " | " +
         cell(field.help + (limits.empty() ? "" : " (" + limits + ")")) + " |\n";
}

std::vector<std::string> groups_of(const FieldSet& fields) {
  std::vector<std::string> groups;
  for (const Field& field : fields.fields) {
    if (!field.is_hidden && std::find(groups.begin(), groups.end(), field.group) == groups.end())
      groups.push_back(field.group);
  }
  return groups;
}

std::string flag_list(const std::vector<Field>& fields) {
  std::string text = "\n ";
  for (const Field& field : fields) text += " " + code(field.flag());
  return text + "\n";
}

std::string known_flags_markdown() {
  const std::vector<Field> of_engine = engine_flag_fields();
  std::string text;
  for (auto first = of_engine.begin(); first != of_engine.end();) {
    const auto last = std::find_if(first, of_engine.end(),
                                   [&](const Field& field) { return field.note != first->note; });
    text += "- Accepted: " + cell(first->note) + "." + flag_list({first, last});
    first = last;
  }
  for (const KnownFlags& flags : known_flags()) {
    const bool accepted = flags.treatment == KnownFlags::Treatment::accepted;
    text += accepted ? "- Accepted: " : "- Refused, except at a neutral value: ";
    text += cell(std::string(flags.reason)) +
            (flags.fix.empty() ? "." : "; " + cell(std::string(flags.fix)) + ".") +
            flag_list(known_flag_fields(flags));
  }
  return text;
}

/// Escapes text for troff: backslashes and leading dots.
std::string troff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n'))
      out += std::string("\\&") + c;
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string config_markdown() {
  std::string text =
      "# Settings of `megatron pretrain`\n\n"
      "This page is generated from the table of settings: `megatron help --markdown > "
      "docs/config.md`.\n\n"
      "A setting can be given on the command line (`--num-layers 12`), in the environment\n"
      "(`MEGATRON_NUM_LAYERS=12`) or in a file of `--config` (YAML or TOML: `num_layers: 12`, at\n"
      "the top level or in a section named after the group: `model:`). Flags have precedence over\n"
      "the environment, and the environment over files. `megatron pretrain … --print-config`\n"
      "prints every value and its origin. The meaning describes the flag as it is spelled here;\n"
      "for a flag such as `--no-x`, the key `x` has the opposite sense.\n";
  const FieldSet& fields = run_table().set();
  for (const std::string& group : groups_of(fields)) {
    text += "\n## " + group + "\n\n| Flag | Key | Default | Meaning |\n| --- | --- | --- | --- |\n";
    for (const Field& field : fields.fields) {
      if (!field.is_hidden && field.group == group) text += field_row(field);
    }
  }
  return text +
         "\n## Known flags of Megatron-LM\n\nAll other flags of Megatron-LM are accepted if they "
         "have no effect:\n\n" +
         known_flags_markdown();
}

std::string manual_page(std::span<const CommandManual> commands, std::string_view version) {
  std::string text = ".TH MEGATRON 1 \"\" \"megatron " + std::string(version) +
                     "\"\n.SH NAME\nmegatron \\- train and run transformer language models\n" +
                     ".SH SYNOPSIS\n.B megatron\n.I command\n[flags]\n.SH COMMANDS\n";
  for (const CommandManual& command : commands)
    text += ".TP\n.B " + troff(command.name) + "\n" + troff(command.summary) + "\n";
  for (const CommandManual& command : commands) {
    if (!command.fields) continue;
    std::string title = "megatron " + std::string(command.name);
    std::transform(title.begin(), title.end(), title.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    text += ".SH " + troff(title) + "\n" +
            (command.fields->about.empty() ? "" : troff(command.fields->about) + "\n");
    for (const std::string& group : groups_of(*command.fields)) {
      if (!group.empty()) text += ".SS " + troff(group) + "\n";
      for (const Field& field : command.fields->fields) {
        if (!field.is_hidden && field.group == group)
          text += ".TP\n.B " + troff(field_usage(field)) + "\n" + troff(field_help(field)) + "\n";
      }
    }
  }
  return text +
         ".SH EXIT STATUS\n0 success; 2 a mistake in flags, files or data; 1 an internal error; "
         "143 stopped by SIGTERM after saving.\n";
}

}  // namespace megatron
