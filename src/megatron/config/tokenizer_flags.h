// The flags of a tokenizer, and which of them were given: a flag that is given changes the
// tokenizer of a checkpoint, also to a default.
#pragma once

#include <set>
#include <string>

#include "megatron/config/command_line.h"
#include "megatron/config/tokenizer_config.h"

namespace megatron {

struct TokenizerFlags {
  TokenizerConfig config = {};
  /// Names of the fields that were given. One whose value is not its default counts as given too.
  std::set<std::string, std::less<>> given = {};
};

/// Returns the flags of a command line.
inline TokenizerFlags tokenizer_flags(const TokenizerConfig& config, const ParseResult& parsed) {
  TokenizerFlags flags{.config = config};
  for (const auto& [name, origin] : parsed.origins) flags.given.insert(name);
  return flags;
}

}  // namespace megatron
