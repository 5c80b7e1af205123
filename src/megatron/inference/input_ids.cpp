#include "megatron/inference/input_ids.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {

std::vector<SourceLine> lines_of(std::string_view content, const std::string& file) {
  std::vector<SourceLine> lines;
  std::size_t begin = 0;
  for (std::int64_t number = 1; begin < content.size(); ++number) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    std::string_view line = content.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t\r\n\f\v") != std::string_view::npos)
      lines.push_back({file + ", line " + std::to_string(number), std::string(line)});
  }
  return lines;
}

std::vector<std::string> read_prompts(const std::filesystem::path& path, std::ostream& notes) {
  const std::string bytes = read_file(path, kMaxInputBytes);
  const auto replaced = replace_invalid_utf8(bytes);
  if (replaced)
    notes << "note: " << path.string() << " contains invalid UTF-8, which is read as U+FFFD\n";
  const std::string& content = replaced ? *replaced : bytes;
  std::vector<std::string> prompts;
  for (auto& [source, line] : lines_of(content, path.string())) {
    if (path.extension() == ".jsonl")
      line = JsonCursor(parse_json(line, source), source)["text"].text();
    prompts.push_back(line);
  }
  if (prompts.empty())
    throw UserError(
        {"--prompt-file " + path.string(), "contains no prompt", "write one prompt per line"});
  return prompts;
}

std::vector<std::int64_t> prompt_ids(const Tokenizer& tokenizer, const std::string& prompt,
                                     const std::string& source, bool is_whole) {
  const std::vector<std::int32_t> ids =
      is_whole ? tokenizer.encode(prompt) : tokenizer.encode_fragment(prompt);
  if (!ids.empty()) return {ids.begin(), ids.end()};
  const std::int32_t begin = tokenizer.bos() >= 0 ? tokenizer.bos() : tokenizer.eod();
  if (begin < 0)
    throw UserError({source, "is empty, and the tokenizer has no token that begins a document",
                     "give some text"});
  return {begin};
}

ScoredLine read_scored_line(const std::string& line, const std::string& source) {
  const JsonCursor members(parse_json(line, source), source);
  const auto read = [&](const std::string& name) {
    const JsonCursor ids = members[name];
    if (!ids->is_array())
      throw UserError(
          {source + ": field '" + name + "' must be a list of token ids", ids->dump(), ""});
    std::vector<std::int64_t> result;
    for (const Json& id : *ids) {
      if (!id.is_number_integer())
        throw UserError(
            {source + ": " + name + "[" + std::to_string(result.size()) + "] must be an integer",
             id.dump(), ""});
      result.push_back(id.get<std::int64_t>());
    }
    return result;
  };
  ScoredLine result{.ids = read("ids")};
  if (!members.find_given("encoder_ids")) return result;
  result.encoder_ids = read("encoder_ids");
  if (result.encoder_ids.empty())
    throw UserError({source + ": field 'encoder_ids'", "an empty list", "give at least a token"});
  return result;
}

std::int64_t max_sequence_length(const TransformerConfig& model) {
  return model.position_embedding_type == PositionEmbedding::learned_absolute
             ? model.max_position_embeddings - model.position_offset
             : std::numeric_limits<std::int64_t>::max();
}

std::int64_t context_length(const TransformerConfig& model) {
  const std::int64_t trained = model.max_position_embeddings - model.position_offset;
  if (trained <= 0) return std::numeric_limits<std::int64_t>::max();
  const bool is_yarn = model.rope_scaling_type == RopeScaling::yarn;
  if (!is_yarn && model.rope_scaling_type != RopeScaling::linear) return trained;
  const auto from =
      static_cast<double>(is_yarn ? model.rope_original_max_position_embeddings : trained);
  return static_cast<std::int64_t>(std::min(from * model.rope_scaling_factor, 1e15));
}

void check_token_ids(std::span<const std::int64_t> ids, const TransformerConfig& model,
                     const std::string& source, std::int64_t num_positions) {
  if (ids.empty())
    throw UserError({source + ": ids", "an empty list", "give at least one token id"});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= model.vocab_size) {
      throw UserError(
          {source + ": ids[" + std::to_string(i) + "]", std::to_string(ids[i]),
           "the model's vocabulary has the ids 0 to " + std::to_string(model.vocab_size - 1)});
    }
  }
  if (num_positions > max_sequence_length(model)) {
    throw UserError({source + ": number of ids", std::to_string(ids.size()),
                     "the model has learned positions for " +
                         std::to_string(max_sequence_length(model)) +
                         " tokens (max_position_embeddings)"});
  }
}

bool shares_expert_capacity(const TransformerConfig& model) {
  return model.moe.num_experts > 0 && model.moe.expert_capacity_factor.has_value();
}

std::string long_sequence_warning(const TransformerConfig& model, std::int64_t length,
                                  const std::string& source) {
  const std::int64_t trained = model.max_position_embeddings;
  if (trained <= 0 || length <= trained ||
      model.position_embedding_type == PositionEmbedding::learned_absolute)
    return {};
  std::string note = source + " has " + std::to_string(length) +
                     " tokens, the model was trained for " + std::to_string(trained) +
                     " (max_position_embeddings): its answers beyond that are likely to be poor";
  if (model.position_embedding_type == PositionEmbedding::rope)
    note +=
        "; training on with --finetune and --rotary-seq-len-interpolation-factor or "
        "--use-rope-scaling extends a model";
  return note;
}

}  // namespace megatron
