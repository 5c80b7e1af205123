// The names of Megatron-LM's Python programs, by which this program may be called: as argv[0] (a
// link called pretrain_gpt.py) or as the first word (`megatron launch -- pretrain_gpt.py …`).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// The command that a program of Megatron-LM stands for, such as {"pretrain", "gpt"}; empty when
/// the path is no such program's.
std::vector<std::string> script_command(std::string_view path);

/// The args with a program of Megatron-LM in front replaced by its command.
std::vector<std::string> with_script_translated(std::vector<std::string> args);

}  // namespace megatron
