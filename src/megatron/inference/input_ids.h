// Reads what `generate` and `score` are given, prompts of a file and lines of token ids, and checks
// ids against a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

class Tokenizer;
struct TransformerConfig;

/// Most bytes of a file of prompts, requests or examples, all of which are kept in memory.
inline constexpr std::uint64_t kMaxInputBytes = std::uint64_t{1} << 31;

/// Returns the prompts of a file: its lines, or in a .jsonl file the field "text" of each line.
/// Blank lines are left out. Writes a note to `notes` if the file is not UTF-8. Throws UserError
/// naming the file and the line, also if there is no prompt.
std::vector<std::string> read_prompts(const std::filesystem::path& path, std::ostream& notes);

/// A line of a file and its name in messages.
struct SourceLine {
  std::string source;
  std::string text;
};
/// Returns the lines of a file but those with nothing but white space.
std::vector<SourceLine> lines_of(std::string_view content, const std::string& file);

/// Returns the ids of a prompt, with the marks of a whole text if it `is_whole`. An empty prompt
/// is the token that begins a document; UserError that names `source` when the tokenizer has
/// none.
std::vector<std::int64_t> prompt_ids(const Tokenizer& tokenizer, const std::string& prompt,
                                     const std::string& source, bool is_whole = true);

/// A line of `megatron score`.
struct ScoredLine {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> encoder_ids = {};  ///< of the text of an encoder; empty: there is none
};
/// Reads a line {"ids": [...]}, which may also have "encoder_ids". UserError that names `source`.
ScoredLine read_scored_line(const std::string& line, const std::string& source);

/// Returns the maximum number of tokens in a sequence: max_position_embeddings with learned
/// positions, otherwise the largest int64 (no limit).
std::int64_t max_sequence_length(const TransformerConfig& model);

/// Returns the number of tokens that the model was made for, as vLLM derives max_model_len:
/// max_position_embeddings, which linear scaling of RoPE multiplies, or with YaRN the original
/// length times its factor; the largest int64 where nothing says it.
std::int64_t context_length(const TransformerConfig& model);

/// Throws UserError naming `source` when `ids` is empty, an id is outside the model's vocabulary,
/// or there are fewer learned positions than `num_positions`.
void check_token_ids(std::span<const std::int64_t> ids, const TransformerConfig& model,
                     const std::string& source, std::int64_t num_positions);

/// Returns whether the tokens of a pass share the capacity of experts, so that a text depends on
/// what is computed beside it.
bool shares_expert_capacity(const TransformerConfig& model);

/// Returns a warning when the sequence `source` has more tokens than the model was trained for and
/// its positions are unlimited (rotary or none); "" otherwise.
std::string long_sequence_warning(const TransformerConfig& model, std::int64_t length,
                                  const std::string& source);

}  // namespace megatron
