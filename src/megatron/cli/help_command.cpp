// Implements `megatron help`: prints the list of commands, the help of one command, or all flags
// that match a word.
#include <iostream>

#include "megatron/cli/command.h"
#include "megatron/config/field_table.h"
#include "megatron/config/help.h"
#include "megatron/config/reference_docs.h"

namespace megatron {
namespace {

struct HelpOptions {
  std::string command;
  bool markdown = false, man = false;
};

const FieldTable<HelpOptions>& help_table() {
  return field_table<HelpOptions>([](auto& t) {
    t.about(
        "Prints the commands, the flags of one command, or every flag that mentions a word: "
        "megatron help learning, megatron help --lr.");
    t.field("command", &HelpOptions::command, "command to explain, or a flag or word to search for")
        .positional()
        .value_name("COMMAND|WORD");
    t.field("markdown", &HelpOptions::markdown, "print the contents of docs/config.md");
    t.field("man", &HelpOptions::man, "print the manual page megatron(1)");
  });
}

void print_overview() {
  std::cout << "Megatron-LM as one program: trains and runs transformer language models.\n\n"
               "usage: megatron <command> [flags]\n";
  std::vector<std::string_view> groups;
  for (const Command& command : commands()) {
    if (groups.empty() || groups.back() != command.group) groups.push_back(command.group);
  }
  for (const auto group : groups) {
    std::cout << "\n" << group << ":\n";
    for (const Command& command : commands()) {
      if (command.group != group) continue;
      std::string name = "  " + std::string(command.name);
      name.resize(20, ' ');
      std::cout << name << command.summary << "\n";
    }
  }
  std::cout << "\n`megatron <command> --help` shows a command's flags.\n"
               "Exit codes: 0 success, 1 internal error, 2 mistake in the input, 16 and 17 the "
               "result of\n"
               "a step was rejected, 143 stopped by SIGTERM after saving.\n";
}

void print_manual() {
  std::vector<CommandManual> manuals;
  for (const Command& command : commands()) {
    manuals.push_back(
        {command.name, command.summary, command.fields ? &command.fields() : nullptr});
  }
  std::cout << manual_page(manuals, MEGATRON_VERSION);
}

/// Returns whether the argument is a flag of another command to search for.
bool is_flag_to_explain(std::span<const std::string> args) {
  return args.size() == 1 && args[0].starts_with("--") && args[0] != "--help" &&
         help_fields().find_name(args[0].substr(2)) == nullptr;
}

/// Prints the flags of all commands that mention the word.
int search(const std::string& word) {
  std::string text;
  for (const Command& command : commands()) {
    if (!command.fields) continue;
    const std::string found = search_help(command.fields(), word, command.name == "pretrain");
    if (!found.empty())
      text +=
          (text.empty() ? "" : "\n") + ("megatron " + std::string(command.name)) + ":\n" + found;
  }
  const bool means_command = !nearest_command(word).empty();
  if (text.empty() && means_command) refuse_command(word);
  if (text.empty()) text = "nothing mentions " + word + "; see megatron --help\n";
  std::cout << text;
  return 0;
}

}  // namespace

const FieldSet& help_fields() { return help_table().set(); }

int run_help(std::span<const std::string> args) {
  HelpOptions options;
  if (is_flag_to_explain(args)) return search(args[0]);
  parse_command_line(help_table(), args, options, "help");
  if (options.markdown) {
    std::cout << config_markdown();
    return 0;
  }
  if (options.man) {
    print_manual();
    return 0;
  }
  if (options.command.empty()) {
    print_overview();
    return 0;
  }
  const Command* command = find_command(options.command);
  if (!command) return search(options.command);
  if (command->fields) {
    std::cout << help_text(command->fields(), command->name);
    return 0;
  }
  const std::string flag = "--help";
  return run_in_engine(command->name, std::span(&flag, 1));
}

}  // namespace megatron
