// Starts a model of one family from the weights of another whose blocks are the same.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/config/layer_plan.h"

namespace megatron {

/// Beginnings of the names of the same parameters in stacks that divide their blocks into layers
/// differently: a GPT's layers have two blocks, attention and feed-forward, those of a hybrid
/// pattern have one.
using NameTable = std::vector<std::pair<std::string, std::string>>;

/// Returns the table from a stack of layers `from` to one of layers `to`. Empty unless both have
/// the same blocks in the same order.
NameTable name_table(const std::vector<LayerKind>& from, const std::vector<LayerKind>& to);

/// Returns the other stack's name of a parameter. One outside of the stack keeps its name.
std::string translate_name(const NameTable& table, const std::string& name);

/// Returns `source` as a checkpoint of the family `family`: its layers are spelled as that family
/// has them, its weights have other names, and the optimizer's state is left out. Throws a
/// UserError when the family does not have such blocks, and for a Hugging Face directory.
CheckpointSource in_family(CheckpointSource source, const std::string& family);

}  // namespace megatron
