// The files that accompany weights.
#pragma once

#include <map>
#include <string>

namespace megatron {

/// Content by file name of config.json, generation_config.json and the tokenizer's files, which are
/// carried between directories and checkpoints.
using AuxiliaryFiles = std::map<std::string, std::string>;

}  // namespace megatron
