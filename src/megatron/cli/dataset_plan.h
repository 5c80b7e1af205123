// `megatron dataset plan`: what a run will take of its data.
#pragma once

#include <span>
#include <string>

namespace megatron {

/// Takes the flags of `megatron pretrain`, and --world-size. Builds the run's datasets and prints
/// for each source and split how many documents and tokens it has, and how many samples and epochs
/// the run takes. Returns the exit code.
int run_dataset_plan(std::span<const std::string> args);

}  // namespace megatron
