// The names of the same parameters in stacks that divide their blocks into layers differently: a
// GPT's layers have attention and a feed-forward block, those of a hybrid pattern have one block.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "megatron/config/layer_plan.h"

namespace megatron {

struct TransformerConfig;

/// Beginnings of names, in one stack and in the other.
using NameTable = std::vector<std::pair<std::string, std::string>>;

/// Returns the kinds of all layers of the model.
std::vector<LayerKind> layer_kinds(const TransformerConfig& config);

/// Returns the table from a stack of layers `from` to one of layers `to`. Empty when their blocks
/// are not the same, in the same order.
NameTable name_table(const std::vector<LayerKind>& from, const std::vector<LayerKind>& to);

/// Returns the name that begins as the table says; a name outside of the layers stays.
std::string translate_name(const NameTable& table, const std::string& name);

}  // namespace megatron
