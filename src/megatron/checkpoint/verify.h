// `megatron checkpoint verify`: every checksum, every number, and nothing on the disk that the
// manifest does not know.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// Everything wrong with one checkpoint folder of ours, each naming file and tensor; empty when it
/// is whole.
std::vector<std::string> verify_folder(const std::filesystem::path& folder);

/// Verifies the latest checkpoint of `root`, or all, or a Hugging Face folder; a line per folder on
/// `out`. Throws a UserError that lists every error.
void verify_checkpoints(const std::filesystem::path& root, bool all, std::ostream& out);

}  // namespace megatron
