// Expands the names of shards as the webdataset package and bash do: {000..123}, {a,b}, and several
// patterns separated by "::".
#pragma once

#include <string>
#include <vector>

namespace megatron {

/// Returns all names in order. Ranges keep leading zeros, may descend and have a step
/// ({0..10..2}); braces may be nested. Throws a UserError for braces that do not match and for more
/// than ten million names.
std::vector<std::string> expand_shard_names(const std::string& pattern);

}  // namespace megatron
