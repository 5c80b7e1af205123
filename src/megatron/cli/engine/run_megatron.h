// The entry of programs outside of this project, which add model families of their own to
// Megatron's commands (examples/extension).
#pragma once

#include <span>
#include <string>

#include "megatron/models/model_family.h"

namespace megatron {

/// Runs a command of `megatron` that needs LibTorch, such as {"pretrain", "gpt", …}, as one rank in
/// the environment of a launcher (torchrun's variables), and returns its exit code. Does not throw.
int run_megatron(std::span<const std::string> args, const ModelFamilies& families);

}  // namespace megatron
