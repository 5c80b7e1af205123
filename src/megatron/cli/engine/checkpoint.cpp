// megatron checkpoint inspect|verify|diff.
#include <iostream>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/checkpoint/diff.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/verify.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/config/fields.h"

namespace megatron {
namespace {

struct CheckpointOptions {
  std::string action;
  std::vector<std::string> folders;
  bool json = false, all = false;
};

const FieldTable<CheckpointOptions>& checkpoint_command_table() {
  static const FieldTable<CheckpointOptions> table = [] {
    FieldTable<CheckpointOptions> t;
    t.about("inspect DIR: what it holds. verify DIR: every checksum. diff A B: the largest difference of each weight.");
    t.group("Checkpoint");
    t.field("action", &CheckpointOptions::action, "what to do").positional().required().choices({"inspect", "verify", "diff"});
    t.field("folders", &CheckpointOptions::folders, "checkpoints or Hugging Face directories").positional().value_name("DIR");
    t.field("json", &CheckpointOptions::json, "inspect: as JSON");
    t.field("all", &CheckpointOptions::all, "verify: every iteration, not only the latest");
    return t;
  }();
  return table;
}

void require_folders(const CheckpointOptions& options) {
  const std::size_t wanted = options.action == "diff" ? 2 : 1;
  if (options.folders.size() == wanted) return;
  throw UserError({"checkpoint " + options.action, "takes " + std::to_string(wanted) + " folder(s), got " + std::to_string(options.folders.size()),
                   options.action == "diff" ? "write: megatron checkpoint diff A B" : "write: megatron checkpoint " + options.action + " DIR"});
}

}  // namespace

int run_checkpoint(std::span<const std::string> args) {
  CheckpointOptions options;
  parse_command_line(checkpoint_command_table(), args, options, "checkpoint");
  require_folders(options);
  if (options.action == "verify") {
    verify_checkpoints(options.folders[0], options.all, std::cout);
  } else if (options.action == "diff") {
    std::cout << difference_text(diff_checkpoints(options.folders[0], options.folders[1]));
  } else {
    const Json inspection = inspect_checkpoint(options.folders[0]);
    std::cout << (options.json ? inspection.dump(2) + "\n" : inspection_text(inspection));
  }
  return 0;
}

}  // namespace megatron
