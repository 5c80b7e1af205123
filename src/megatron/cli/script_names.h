// Maps the names of Megatron-LM's Python programs to commands. This program can be called by such a
// name as argv[0] (a link called pretrain_gpt.py) or as the first word (`megatron launch --
// pretrain_gpt.py …`).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Returns the command of a program of Megatron-LM, such as {"pretrain", "gpt"}, or an empty list
/// if the path names no such program.
std::vector<std::string> script_command(std::string_view path);

/// Replaces a program of Megatron-LM as the first argument by its command.
std::vector<std::string> with_script_translated(std::vector<std::string> args);

}  // namespace megatron
