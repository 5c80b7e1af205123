// Settings in files. The input is YAML or TOML: the first byte chooses, even for YAML.
#include "megatron/config/config_file.h"

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"

namespace megatron::fuzz {

void parse_config_file(std::string_view input) {
  if (input.empty()) return;
  const bool is_yaml = input.front() % 2 == 0;
  const std::string path = write_input(is_yaml ? "run.yaml" : "run.toml", input.substr(1));
  static const FieldIndex index(settings_table().set());
  Problems problems;
  const std::vector<Assignment> assignments = read_config_file(index, path, problems);
  Settings settings;
  ParseResult parsed;
  apply_assignments(assignments, &settings, parsed, problems);
  problems.throw_if_any();
}

}  // namespace megatron::fuzz
