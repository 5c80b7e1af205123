// Parses the values of Slurm's variables: lists of nodes and tasks per node.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Expands a node list: "n[01-02,7],login" → n01, n02, n7, login. Several ranges in one name are
/// combined: "r[1-2]n[1-2]" → r1n1, r1n2, r2n1, r2n2. Throws a UserError that names `variable` if
/// the text is not a node list.
std::vector<std::string> expand_node_list(std::string_view text, const std::string& variable);

/// Expands "2(x3),1" to 2, 2, 2, 1. Throws a UserError that names `variable` if the text is
/// invalid.
std::vector<std::int64_t> expand_tasks_per_node(std::string_view text, const std::string& variable);

}  // namespace megatron
