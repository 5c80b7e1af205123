// The settings of `replay`.
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

const FieldTable<ReplayOptions>& replay_table();

/// Parses the flags of `replay`. Also throws a UserError if no file is given.
ReplayOptions read_replay_options(std::span<const std::string> args);

}  // namespace megatron
