#include "megatron/cli/script_names.h"

#include <array>

namespace megatron {
namespace {

struct Script {
  std::string_view name;
  std::string_view command, first_word;
};

constexpr std::array kScripts{
    Script{"pretrain_gpt", "pretrain", "gpt"},
    Script{"pretrain_bert", "pretrain", "bert"},
    Script{"pretrain_t5", "pretrain", "t5"},
    Script{"pretrain_hybrid", "pretrain", "hybrid"},
    Script{"pretrain_mamba", "pretrain", "hybrid"},
    Script{"pretrain_vlm", "pretrain", "vlm"},
    Script{"preprocess_data", "preprocess-data", ""},
    Script{"merge_datasets", "dataset", "merge"},
    Script{"checkpoint_inspector", "checkpoint", ""},
    Script{"gpt_static_inference", "generate", ""},
    Script{"gpt_dynamic_inference", "generate", ""},
    Script{"run_text_generation_server", "serve", ""},
    Script{"run_dynamic_text_generation_server", "serve", ""},
};

}  // namespace

std::vector<std::string> script_command(std::string_view path) {
  std::string_view name = path.substr(path.find_last_of('/') + 1);
  if (name.ends_with(".py")) name.remove_suffix(3);
  for (const Script& script : kScripts) {
    if (script.name != name) continue;
    std::vector<std::string> args{std::string(script.command)};
    if (!script.first_word.empty()) args.emplace_back(script.first_word);
    return args;
  }
  return {};
}

std::vector<std::string> with_script_translated(std::vector<std::string> args) {
  std::vector<std::string> command =
      args.empty() ? std::vector<std::string>{} : script_command(args.front());
  if (command.empty()) return args;
  command.insert(command.end(), std::make_move_iterator(args.begin() + 1),
                 std::make_move_iterator(args.end()));
  return command;
}

}  // namespace megatron
