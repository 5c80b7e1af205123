// What Slurm writes into its variables: lists of nodes and tasks per node.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// "n[01-02,7],login" → n01, n02, n7, login. Several ranges in one name multiply: "r[1-2]n[1-2]" →
/// r1n1, r1n2, r2n1, r2n2. UserError naming `variable` when the text is no such list.
std::vector<std::string> expand_node_list(std::string_view text, const std::string& variable);

/// "2(x3),1" → 2, 2, 2, 1. UserError naming `variable` when the text is no such list.
std::vector<std::int64_t> expand_tasks_per_node(std::string_view text, const std::string& variable);

}  // namespace megatron
