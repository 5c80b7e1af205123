// The settings of `check`.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "megatron/config/field_table.h"
#include "megatron/config/run_settings.h"

namespace megatron {

struct CheckOptions {
  std::int64_t world_size = 1, max_ranks = 64;
  bool json = false;
};

const FieldTable<CheckOptions>& check_table();

/// The options of a check and the run that it checks.
struct CheckedRun {
  CheckOptions options;
  RunConfig run;
};

/// Reads the flags of `check` and, from the others, a run of --world-size ranks as read_run() does.
CheckedRun read_check(std::span<const std::string> args,
                      const std::vector<std::string>& families = {});

}  // namespace megatron
