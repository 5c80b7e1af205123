// The settings of `replay` and `hang-report`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "megatron/config/field_table.h"

namespace megatron {

struct ReplayOptions {
  std::string file;
  std::string load;
  std::optional<std::int64_t> ckpt_step;
  bool json = false;
};

struct HangReportFlags {
  std::string folder;
  bool json = false;
};

const FieldTable<ReplayOptions>& replay_table();
const FieldTable<HangReportFlags>& hang_report_table();

/// Parses the flags of `replay`. Also throws a UserError if no file is given.
ReplayOptions read_replay_options(std::span<const std::string> args);
/// Parses the flags of `hang-report`. Also throws a UserError if no folder is given.
HangReportFlags read_hang_report_flags(std::span<const std::string> args);

}  // namespace megatron
