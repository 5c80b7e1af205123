// The front end of `megatron hang-report`. It prints the help and reports mistakes in the flags
// before the engine is loaded.
#include "megatron/cli/command.h"
#include "megatron/config/hang_report_options.h"

namespace megatron {

const FieldSet& hang_report_fields() { return hang_report_table().set(); }

int run_hang_report_frontend(std::span<const std::string> args) {
  read_hang_report_flags(args);
  return run_in_engine("hang-report", args);
}

}  // namespace megatron
