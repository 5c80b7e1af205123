// The commands that the engine runs. To add one, declare it here and add a line in run_megatron.cpp
// and in cli/commands.cpp.
#pragma once

#include <span>
#include <string>

namespace megatron {

class ModelFamilies;

int run_batch(std::span<const std::string> args, const ModelFamilies& families);
int run_check(std::span<const std::string> args, const ModelFamilies& families);
int run_evaluate(std::span<const std::string> args, const ModelFamilies& families);
int run_fill_mask(std::span<const std::string> args, const ModelFamilies& families);
int run_hang_report(std::span<const std::string> args, const ModelFamilies& families);
int run_pretrain(std::span<const std::string> args, const ModelFamilies& families);
int run_convert(std::span<const std::string> args, const ModelFamilies& families);
int run_checkpoint(std::span<const std::string> args, const ModelFamilies& families);
int run_generate(std::span<const std::string> args, const ModelFamilies& families);
int run_plan_layouts(std::span<const std::string> args, const ModelFamilies& families);
int run_plan_memory(std::span<const std::string> args, const ModelFamilies& families);
int run_plan_checkpoint(std::span<const std::string> args, const ModelFamilies& families);
int run_replay(std::span<const std::string> args, const ModelFamilies& families);
int run_serve(std::span<const std::string> args, const ModelFamilies& families);
int run_score(std::span<const std::string> args, const ModelFamilies& families);

}  // namespace megatron
