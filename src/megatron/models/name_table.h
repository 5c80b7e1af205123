// The names of the same parameters in stacks that divide their blocks into layers differently: a
// GPT's layers have two blocks, attention and feed-forward, those of a hybrid pattern have one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "megatron/config/layer_plan.h"

namespace megatron {

/// Beginnings of names, in one stack and in the other.
using NameTable = std::vector<std::pair<std::string, std::string>>;

/// Returns the table from a stack of layers `from` to one of layers `to`. Empty unless both have
/// the same blocks in the same order.
NameTable name_table(const std::vector<LayerKind>& from, const std::vector<LayerKind>& to);

/// Returns the other stack's name of a parameter. One outside of the stack keeps its name.
std::string translate_name(const NameTable& table, const std::string& name);

}  // namespace megatron
