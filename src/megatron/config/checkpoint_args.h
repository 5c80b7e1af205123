// Reads the settings that Megatron-LM's checkpoints hold as "args", the namespace of its argparse.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace megatron {

struct Settings;

/// The names of argparse, such as "num_layers", and their values as flags would have them. Values
/// that are None are left out.
using CheckpointArgs = std::vector<std::pair<std::string, std::vector<std::string>>>;

/// Returns the settings of these args, unresolved. Names that we do not know are left out, and so
/// are folders and files, which are those of another machine. Throws a UserError that names
/// `source` and the arg if one of the architecture has a value that is not supported.
Settings read_checkpoint_args(const CheckpointArgs& args, const std::string& source);

}  // namespace megatron
