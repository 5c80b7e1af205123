// Command lines of `megatron pretrain`. The input is the words, separated by NUL bytes.
#include "megatron/config/command_line.h"

#include <string>
#include <vector>

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"

namespace megatron::fuzz {

void parse_command_line(std::string_view input) {
  std::vector<std::string> words;
  while (!input.empty()) words.emplace_back(take_part(input));
  Settings settings;
  try {
    const ParseResult parsed =
        megatron::parse_command_line(settings_table().set(), words, &settings, "pretrain gpt");
    notes_text(parsed.notes);
  } catch (const HelpRequested&) {
    return;  // --help is a good answer too
  }
}

}  // namespace megatron::fuzz
