// The settings of `hang-report`.
#pragma once

#include <span>
#include <string>

#include "megatron/config/field_table.h"

namespace megatron {

struct HangReportFlags {
  std::string folder;
  bool json = false;
};

const FieldTable<HangReportFlags>& hang_report_table();

/// Parses the flags of `hang-report`. Also throws a UserError if no folder is given.
HangReportFlags read_hang_report_flags(std::span<const std::string> args);

}  // namespace megatron
