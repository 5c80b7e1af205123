#include "megatron/cli/tokenizer_report.h"

#include <algorithm>
#include <iostream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {

OpenedTokenizer open_tokenizer(const TokenizerCommandOptions& options, const std::string& file) {
  OpenedTokenizer opened{.config = options.tokenizer, .tokenizer = nullptr, .about = {}};
  opened.config.tokenizer_model = file;
  if (!fs::exists(file)) throw UserError({file + " does not exist", "", "check the path"});
  if (fs::is_directory(file) && fs::exists(fs::path(file) / "vocab.json") &&
      !fs::exists(fs::path(file) / "tokenizer.json")) {
    opened.config.vocab_file = (fs::path(file) / "vocab.json").string();
    opened.config.merge_file = (fs::path(file) / "merges.txt").string();
  }
  opened.tokenizer = make_tokenizer(opened.config);
  opened.about = describe_tokenizer(opened.config, *opened.tokenizer);
  return opened;
}

std::string quoted_token(const std::string& token) { return JsonText(token).dump(); }

std::string summary_of(const TokenizerDescription& about) {
  std::string text = about.model;
  if (about.num_merges >= 0) text += ", " + std::to_string(about.num_merges) + " merges";
  return text + ", " + std::to_string(about.num_tokens) + " tokens";
}

std::vector<std::pair<std::string, std::string>> text_rows(const TextStatistics& text,
                                                           const WordStatistics& words) {
  return {{"tokens", std::to_string(text.tokens)},
          {"bytes per token", format("%.3f", text.bytes_per_token())},
          {"tokens per word", format("%.3f", text.tokens_per_word())},
          {"divided words", format("%.1f %%", 100 * words.divided_share)},
          {"unknown tokens", std::to_string(text.unknown_tokens)}};
}

JsonText text_json(const TextStatistics& text, const WordStatistics& words) {
  JsonText longest = JsonText::array();
  for (const LongWord& word : words.longest)
    longest.push_back({{"word", word.word}, {"tokens", word.tokens}, {"count", word.count}});
  return {{"bytes", text.bytes},
          {"characters", text.characters},
          {"words", text.words},
          {"tokens", text.tokens},
          {"bytes_per_token", text.bytes_per_token()},
          {"tokens_per_word", text.tokens_per_word()},
          {"divided_words", words.divided_share},
          {"unknown_tokens", text.unknown_tokens},
          {"longest_words", longest}};
}

void print_rows(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (widths.size() == i) widths.push_back(0);
      widths[i] = std::max(widths[i], count_characters(row[i]));
    }
  for (const auto& row : rows) {
    std::string line = "  ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - count_characters(row[i]), ' ');
    }
    std::cout << line << "\n";
  }
}

}  // namespace megatron
