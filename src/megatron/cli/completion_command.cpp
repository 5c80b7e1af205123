// Implements `megatron completion`: generates completion scripts from the tables of commands and
// flags.
#include <iostream>

#include "megatron/base/words.h"
#include "megatron/cli/command.h"
#include "megatron/config/field_table.h"
#include "megatron/config/help.h"

namespace megatron {
namespace {

struct CompletionOptions {
  std::string shell;
};

const FieldTable<CompletionOptions>& completion_table() {
  return field_table<CompletionOptions>([](auto& t) {
    t.about(
        "Prints a completion script. bash: eval \"$(megatron completion bash)\"; zsh: eval "
        "\"$(megatron completion zsh)\"; "
        "fish: megatron completion fish | source");
    t.field("shell", &CompletionOptions::shell, "shell to print the script for")
        .positional()
        .required()
        .choices({"bash", "zsh", "fish"});
  });
}

std::vector<std::string> visible_flags(const Command& command) {
  std::vector<std::string> flags{"--help"};
  if (!command.fields) return flags;
  for (const Field& field : command.fields().fields) {
    if (field.is_hidden || field.is_positional) continue;
    flags.push_back(shown_flag(field));
  }
  return flags;
}

std::string joined(const std::vector<std::string>& words) { return joined_text(words, " "); }

std::string command_names() { return joined_text(commands(), " ", &Command::name); }

/// Prints the cases "command:--flag) values" for flags and words that have choices.
template <class Print>
void for_each_choice(const Print& print) {
  for (const Command& command : commands()) {
    if (!command.fields) continue;
    for (const Field& field : command.fields().fields) {
      if (!field.is_hidden && !field.choices.empty()) print(command, field);
    }
  }
}

void print_bash() {
  std::cout << "_megatron() {\n"
               "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\" "
               "command=\"${COMP_WORDS[1]}\" words=\"\"\n"
               "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
               "    COMPREPLY=($(compgen -W \""
            << command_names()
            << " --help --version\" -- \"$word\")); return\n"
               "  fi\n"
               "  case \"$command:$before\" in\n";
  for_each_choice([](const Command& command, const Field& field) {
    if (field.is_positional) return;
    std::cout << "    " << command.name << ":" << field.flag() << ") words=\""
              << joined(field.choices) << "\";;\n";
  });
  std::cout << "  esac\n"
               "  if [ -z \"$words\" ] && [[ \"$word\" == -* ]]; then\n"
               "    case \"$command\" in\n";
  for (const Command& command : commands())
    std::cout << "      " << command.name << ") words=\"" << joined(visible_flags(command))
              << "\";;\n";
  std::cout << "    esac\n"
               "  elif [ -z \"$words\" ] && [ \"$COMP_CWORD\" -eq 2 ]; then\n"
               "    case \"$command\" in\n"
               "      help) words=\""
            << command_names() << "\";;\n";
  for_each_choice([](const Command& command, const Field& field) {
    if (field.is_positional)
      std::cout << "      " << command.name << ") words=\"" << joined(field.choices) << "\";;\n";
  });
  std::cout << "    esac\n"
               "  fi\n"
               "  if [ -n \"$words\" ]; then COMPREPLY=($(compgen -W \"$words\" -- \"$word\")); "
               "else COMPREPLY=($(compgen -f -- \"$word\")); fi\n"
               "}\n"
               "complete -o filenames -F _megatron megatron\n";
}

std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

void print_fish() {
  std::cout << "complete -c megatron -f\n";
  for (const Command& command : commands()) {
    std::cout << "complete -c megatron -n __fish_use_subcommand -a " << command.name << " -d "
              << quoted(command.summary) << "\n";
  }
  for (const Command& command : commands()) {
    if (!command.fields) continue;
    for (const Field& field : command.fields().fields) {
      if (field.is_hidden) continue;
      std::cout << "complete -c megatron -n '__fish_seen_subcommand_from " << command.name << "'";
      if (!field.is_positional) {
        std::cout << " -l " << shown_flag(field).substr(2);
        if (!field.is_switch()) std::cout << (field.choices.empty() ? " -r -F" : " -x");
      }
      if (!field.choices.empty()) std::cout << " -a " << quoted(joined(field.choices));
      std::cout << " -d " << quoted(field.help) << "\n";
    }
  }
}

}  // namespace

const FieldSet& completion_fields() { return completion_table().set(); }

int run_completion(std::span<const std::string> args) {
  CompletionOptions options;
  parse_command_line(completion_table(), args, options, "completion");
  if (options.shell == "fish") {
    print_fish();
    return 0;
  }
  if (options.shell == "zsh") std::cout << "autoload -U +X bashcompinit && bashcompinit\n";
  print_bash();
  return 0;
}

}  // namespace megatron
