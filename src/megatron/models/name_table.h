// The names of the same parameters in stacks that divide their blocks into layers differently: a
// GPT's layers have two blocks, attention and feed-forward, those of a hybrid pattern have one.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace megatron {

struct TransformerConfig;

/// Beginnings of names, in one model and in the other.
using NameTable = std::vector<std::pair<std::string, std::string>>;

/// Returns the table from one model to another. Empty unless both have the same blocks in the same
/// order.
NameTable name_table(const TransformerConfig& from, const TransformerConfig& to);

/// Returns the other model's name of a parameter. One outside of the layers keeps its name.
std::string translate_name(const NameTable& table, const std::string& name);

}  // namespace megatron
