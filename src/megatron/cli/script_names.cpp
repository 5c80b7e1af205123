#include "megatron/cli/script_names.h"

#include <algorithm>
#include <array>

#include "megatron/base/words.h"

namespace megatron {
namespace {

struct Script {
  const char* names;
  const char* command;
};

/// Programs of Megatron-LM since v1.0, and those of Pai-Megatron-Patch that train GPT models. Any
/// other pretrain_X trains a model of the family X.
constexpr std::array kScripts{
    Script{"pretrain_gpt pretrain_gpt2 finetune_gpt pretrain_megatron_gpt3 pretrain_llama "
           "pretrain_mcore_llama pretrain_megatron_llama pretrain_mcore_mistral pretrain_qwen "
           "pretrain_mcore_qwen pretrain_megatron_qwen pretrain_qwen2_moe pretrain_deepseek",
           "pretrain gpt"},
    Script{"pretrain_mamba", "pretrain hybrid"},
    Script{"preprocess_data", "preprocess-data"},
    Script{"merge_datasets", "dataset merge"},
    Script{"checkpoint_inspector", "checkpoint"},
    Script{"convert checkpoint_util", "convert"},
    Script{"gpt_static_inference gpt_dynamic_inference", "generate"},
    Script{"run_text_generation_server run_dynamic_text_generation_server "
           "run_hybrid_text_generation_server run_mamba_text_generation_server",
           "serve"},
};

}  // namespace

std::vector<std::string> script_command(std::string_view path) {
  if (path.ends_with("tasks/main.py")) return {"pretrain", "bert"};  // with --task
  std::string_view name = path.substr(path.find_last_of('/') + 1);
  if (name.ends_with(".py")) name.remove_suffix(3);
  for (const Script& script : kScripts)
    if (std::ranges::count(split_words(script.names), name) > 0) return split_words(script.command);
  if (name.starts_with("pretrain_")) return {"pretrain", std::string(name.substr(9))};
  return {};
}

std::vector<std::string> with_script_translated(std::vector<std::string> args) {
  std::vector<std::string> command =
      args.empty() ? std::vector<std::string>{} : script_command(args.front());
  if (command.empty() && args.size() > 1 && args[1] == "mamba") args[1] = "hybrid";
  if (command.empty()) return args;
  command.insert(command.end(), std::make_move_iterator(args.begin() + 1),
                 std::make_move_iterator(args.end()));
  return command;
}

}  // namespace megatron
