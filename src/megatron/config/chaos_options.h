// The settings of `chaos`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/config/field_table.h"

namespace megatron {

struct ChaosOptions {
  std::int64_t seed = 1;
  std::int64_t faults = 5;
  std::vector<std::string> kinds = {"kill", "segfault",  "stop",      "pause",
                                    "slow", "full-disk", "drop-link", "corrupt-link"};
  std::string scratch;  ///< "": a temporary folder, which is removed after a right run
  std::optional<double> timeout_seconds;  ///< see seconds_until_hung()
  bool json = false;
};

const FieldTable<ChaosOptions>& chaos_table();

/// Reads the flags before `--`. `command` receives the words after it. Throws a UserError if there
/// are none.
ChaosOptions read_chaos_options(std::span<const std::string> args,
                                std::vector<std::string>& command);

/// Returns after how many seconds without a finished step a run hangs. Ranks that wait for a
/// stopped one end after `distributed_timeout_minutes` and are then started again, so the default
/// leaves two minutes for this. Throws a UserError if --timeout-seconds ends the run earlier.
double seconds_until_hung(const ChaosOptions& options, double distributed_timeout_minutes);

}  // namespace megatron
