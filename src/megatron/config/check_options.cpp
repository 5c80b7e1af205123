#include "megatron/config/check_options.h"

#include <algorithm>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/command_line.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/validate_settings.h"
#include "megatron/config/world_rules.h"

namespace megatron {
namespace {

/// Returns the field of `check` that a word names as a flag, with or without "=value".
const Field* own_field(const std::string& word) {
  if (word == "--help" || word == "-h") return nullptr;
  const std::string flag = word.substr(0, word.find('='));
  for (const Field& field : check_table().set().fields)
    if (field.flag() == flag) return &field;
  return nullptr;
}

/// Throws a UserError if the flags do not describe the model, or ask for something else. Adds the
/// notes on the model, and translates what read_run() leaves to a checkpoint.
void require_architecture(RunConfig& checked, std::int64_t world_size) {
  RunOptions& run = checked.options;
  if (run.print_config)
    throw UserError({"--print-config", "belongs to `megatron pretrain`", "leave it out"});
  if (run.settings.checkpoint->load.empty()) return;
  Problems problems;
  translate_rope_flags(run.settings, checked.parsed, problems, nullptr);
  Settings settings = run.settings;
  if (settings.model->num_layers == 0)
    throw UserError({"--load", "gives no architecture to a check, which reads no checkpoint",
                     "add --num-layers and the other flags of the model"});
  settings.checkpoint->load.clear();
  resolve(settings, data_parallel_size(settings, world_size));
  problems.add(validate_model(settings));
  add_notes(problems.notes(), checked.parsed.notes);
  problems.throw_if_any();
}

}  // namespace

const FieldTable<CheckOptions>& check_table() {
  return field_table<CheckOptions>([](auto& t) {
    t.about(
        "Checks that a layout computes what one rank computes, before a cluster is rented: runs "
        "one step of a run with every rank a thread of this process, shapes scaled down with all "
        "that divides them, and compares loss, activations, gradients and updated weights with "
        "the same step on one rank. Takes the flags of `megatron pretrain`. The exit code is 1 if "
        "they differ.");
    t.group("Check");
    t.field("world_size", &CheckOptions::world_size, "number of ranks of the run")
        .required()
        .at_least(1);
    t.field("max_ranks", &CheckOptions::max_ranks,
            "run fewer data-parallel ranks if there are more ranks than this")
        .at_least(1);
    t.field("json", &CheckOptions::json, "print one JSON object instead of a table");
  });
}

CheckedRun read_check(std::span<const std::string> args, const std::vector<std::string>& families) {
  std::vector<std::string> own, others;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const bool asks_for_help = args[i] == "--help" || args[i] == "-h";
    const Field* field = own_field(args[i]);
    auto& words = field != nullptr || asks_for_help ? own : others;
    words.push_back(args[i]);
    const bool has_value = field != nullptr && field->kind != ValueKind::boolean &&
                           args[i].find('=') == std::string::npos;
    if (has_value && i + 1 < args.size()) own.push_back(args[++i]);
  }
  CheckedRun checked;
  parse_command_line(check_table(), own, checked.options, "check");
  checked.run = read_run(others, checked.options.world_size, families);
  require_architecture(checked.run, checked.options.world_size);
  return checked;
}

}  // namespace megatron
