// Reads what `generate` and `score` are given: prompts of a file, and lines of token ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// Returns the prompts of a file: its lines, or in a .jsonl file the field "text" of each line.
/// Blank lines are left out. Writes a note to `notes` if the file is not UTF-8. Throws UserError
/// naming the file and the line, also if there is no prompt.
std::vector<std::string> read_prompts(const std::filesystem::path& path, std::ostream& notes);

/// Returns the ids of a line {"ids": [...]}. Throws UserError naming `source`.
std::vector<std::int64_t> read_ids(const std::string& line, const std::string& source);

}  // namespace megatron
