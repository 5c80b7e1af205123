// `megatron help`: the list of commands, or one command's help.
#include <iostream>

#include "megatron/cli/command.h"
#include "megatron/config/fields.h"
#include "megatron/config/help.h"
#include "megatron/config/reference.h"

namespace megatron {
namespace {

struct HelpOptions {
  std::string command;
  bool markdown = false, man = false;
};

const FieldTable<HelpOptions>& help_table() {
  static const FieldTable<HelpOptions> table = [] {
    FieldTable<HelpOptions> t;
    t.about("Shows the commands, or the flags of one command.");
    t.field("command", &HelpOptions::command, "command to explain").positional().value_name("COMMAND");
    t.field("markdown", &HelpOptions::markdown, "print docs/config.md");
    t.field("man", &HelpOptions::man, "print the manual page megatron(1)");
    return t;
  }();
  return table;
}

void print_overview() {
  std::cout << "Megatron-LM as one program: trains transformer language models and lets them speak.\n\n"
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
  std::cout << "\n`megatron <command> --help` shows a command's flags. Exit codes: 0 done, 2 a mistake in the input, 1 internal error,\n"
               "143 stopped by SIGTERM after saving, 16 and 17 a step whose result was not accepted.\n";
}

void print_manual() {
  std::vector<CommandManual> manuals;
  for (const Command& command : commands()) {
    manuals.push_back({command.name, command.summary, command.fields ? &command.fields() : nullptr});
  }
  std::cout << manual_page(manuals, MEGATRON_VERSION);
}

}  // namespace

const FieldSet& help_fields() { return help_table().set(); }

int run_help(std::span<const std::string> args) {
  HelpOptions options;
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
  if (!command) throw UserError({"'" + options.command + "'", "unknown command", "see megatron --help"});
  if (command->fields) {
    std::cout << help_text(command->fields(), command->name);
    return 0;
  }
  const std::string flag = "--help";
  return run_in_engine(command->name, std::span(&flag, 1));
}

}  // namespace megatron
