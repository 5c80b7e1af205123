// `megatron checkpoint verify`: checks every checksum, that every value is finite, and that the
// files hold nothing that the manifest does not list.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// Returns the errors of one native checkpoint folder; each names file and tensor. Empty when the
/// folder is intact.
std::vector<std::string> verify_folder(const std::filesystem::path& folder);

/// Verifies the latest checkpoint of `root`, or all of them, or a Hugging Face directory. Prints
/// one line per folder on `out`. Throws a UserError that lists every error.
void verify_checkpoints(const std::filesystem::path& root, bool all, std::ostream& out);

}  // namespace megatron
