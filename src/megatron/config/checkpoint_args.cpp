#include "megatron/config/checkpoint_args.h"

#include <algorithm>
#include <string>

#include "megatron/base/error.h"
#include "megatron/config/command_line.h"
#include "megatron/config/field_index.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/problems.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

/// Returns the values as the command line has them, where a list may be one value: a pattern of
/// layers, or sides of a window.
std::vector<std::string> as_flag(const Field& field, const std::vector<std::string>& values) {
  if (field.is_list || values.size() < 2) return values;
  std::string joined;
  for (const std::string& value : values) joined += (joined.empty() ? "" : ",") + value;
  return {field.kind == ValueKind::text ? "[" + joined + "]" : joined};
}

}  // namespace

Settings read_checkpoint_args(const CheckpointArgs& args, const std::string& source) {
  static const FieldIndex index(settings_table().set());
  Settings settings;
  std::vector<Assignment> known;
  Problems problems;
  for (const auto& [name, given] : args) {
    std::string spelling = name;
    std::ranges::replace(spelling, '_', '-');
    const Spelling meaning = index.find(spelling);
    if (meaning.field == nullptr || meaning.turns_off) continue;
    const Field& field = *meaning.field;
    const std::vector<std::string> values = as_flag(field, given);
    if (field.value_name == "DIR" || field.value_name == "FILE") continue;
    if (field.get(&settings) == values) continue;
    // What is not of the architecture may have values of another version.
    const bool is_legacy = legacy_table().set().find_name(field.name) != nullptr;
    if (field.architecture == ArchitectureRole::none && !is_legacy) {
      try {
        Settings scratch;
        assign(field, &scratch, values);
      } catch (const FieldError&) {
        continue;
      }
    }
    known.push_back({.field = &field,
                     .values = values,
                     .origin = {Origin::Kind::file, source + ": args." + name},
                     .spelling = field.flag()});
  }
  ParseResult parsed;
  apply_assignments(known, &settings, parsed, problems);
  std::erase(settings.model->hybrid_layer_pattern, '|');  // stages of the run that saved
  translate_legacy_flags(settings, parsed, problems);
  problems.throw_if_any();
  return settings;
}

}  // namespace megatron
