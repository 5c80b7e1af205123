// Implements `megatron tokenizer diff`.
#include <algorithm>
#include <iostream>
#include <mutex>
#include <optional>
#include <tuple>

#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/cli/tokenizer_report.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/text_corpus.h"
#include "megatron/tokenizers/inspection/vocabulary_comparison.h"

namespace megatron {
namespace {

constexpr std::size_t kTokensShown = 10;

/// The first place of a text where the ids differ.
struct IdDifference {
  std::uint64_t chunk = 0;
  std::int64_t line = 0;
  std::size_t index = 0;  ///< of the token in its document
  std::string file;
  std::int32_t id_a = -1, id_b = -1;  ///< −1: the ids have ended
};

struct TextComparison {
  TextStatistics a, b;
  WordStatistics words_a, words_b;
  std::optional<IdDifference> first;
};

std::optional<IdDifference> difference_of(const CorpusText& text,
                                          const std::vector<std::int32_t>& a,
                                          const std::vector<std::int32_t>& b) {
  const auto [at_a, at_b] = std::ranges::mismatch(a, b);
  if (at_a == a.end() && at_b == b.end()) return std::nullopt;
  return IdDifference{.chunk = text.chunk_number,
                      .line = text.line,
                      .index = static_cast<std::size_t>(at_a - a.begin()),
                      .file = text.chunk.file,
                      .id_a = at_a == a.end() ? -1 : *at_a,
                      .id_b = at_b == b.end() ? -1 : *at_b};
}

TextComparison compare_texts(const TokenizerCommandOptions& options, const OpenedTokenizer& a,
                             const OpenedTokenizer& b) {
  struct Part {
    TextStatistics a, b;
    std::optional<IdDifference> first;
  };
  std::vector<Part> parts(static_cast<std::size_t>(options.workers));
  const auto keep_first = [](std::optional<IdDifference>& first,
                             const std::optional<IdDifference>& other) {
    if (other &&
        (!first || std::tie(other->chunk, other->line) < std::tie(first->chunk, first->line)))
      first = other;
  };
  read_text_corpus(options.corpus(options.text), [&](const CorpusText& text) {
    Part& part = parts[text.worker];
    const auto ids_a = a.tokenizer->encode(text.text), ids_b = b.tokenizer->encode(text.text);
    part.a.add(text.text, ids_a, a.tokenizer->unk());
    part.b.add(text.text, ids_b, b.tokenizer->unk());
    keep_first(part.first, difference_of(text, ids_a, ids_b));
  });
  TextComparison result;
  for (const Part& part : parts) {
    result.a.merge(part.a);
    result.b.merge(part.b);
    keep_first(result.first, part.first);
  }
  if (result.a.bytes == 0) throw UserError({"--text holds no text", "", "check the file"});
  result.words_a = word_statistics(result.a.distinct_words, *a.tokenizer, a.about.spelling, 5);
  result.words_b = word_statistics(result.b.distinct_words, *b.tokenizer, b.about.spelling, 5);
  return result;
}

std::string shown(const std::vector<std::string>& tokens) {
  std::string text = std::to_string(tokens.size());
  for (std::size_t i = 0; i < std::min(tokens.size(), kTokensShown); ++i)
    text += (i == 0 ? ": " : ", ") + quoted_token(tokens[i]);
  return text + (tokens.size() > kTokensShown ? ", …" : "");
}

std::string shown(const std::vector<MovedToken>& moved, std::int64_t num_common) {
  std::string text = std::to_string(moved.size()) + " of " + std::to_string(num_common);
  for (std::size_t i = 0; i < std::min(moved.size(), kTokensShown); ++i)
    text += (i == 0 ? ": " : ", ") + quoted_token(moved[i].token) + " " +
            std::to_string(moved[i].id_a) + " and " + std::to_string(moved[i].id_b);
  return text + (moved.size() > kTokensShown ? ", …" : "");
}

std::string shown_merges(const VocabularyComparison& compared) {
  if (compared.num_merges_a == 0 || compared.num_merges_b == 0) return "not in both";
  if (!compared.first_merge) return "the same " + std::to_string(compared.num_merges_a);
  const auto merge = [](const std::string& text) { return text.empty() ? "none" : text; };
  return "differ from number " + std::to_string(compared.first_merge->index) +
         " on: " + merge(compared.first_merge->merge_a) + " and " +
         merge(compared.first_merge->merge_b) + "; only in A " +
         std::to_string(compared.num_merges_only_a) + ", only in B " +
         std::to_string(compared.num_merges_only_b);
}

/// Returns the token of an id with the id.
std::string shown_id(const Tokenizer& tokenizer, std::int32_t id) {
  if (id < 0) return "the end";
  return std::to_string(id) + " " + quoted_token(tokenizer.token(id));
}

void print_text(const OpenedTokenizer& a, const OpenedTokenizer& b, const TextComparison& text) {
  std::cout << "text: " << text.a.bytes << " bytes, " << text.a.characters << " characters, "
            << text.a.words << " words\n";
  std::vector<std::vector<std::string>> rows{{"", "A", "B"}};
  const auto rows_a = text_rows(text.a, text.words_a), rows_b = text_rows(text.b, text.words_b);
  for (std::size_t i = 0; i < rows_a.size(); ++i)
    rows.push_back({rows_a[i].first, rows_a[i].second, rows_b[i].second});
  print_rows(rows);
  if (!text.first) {
    std::cout << "the ids are the same\n";
    return;
  }
  std::cout << "the ids differ first in " << text.first->file << ":" << text.first->line
            << ", token " << text.first->index << ": " << shown_id(*a.tokenizer, text.first->id_a)
            << " and " << shown_id(*b.tokenizer, text.first->id_b) << "\n";
}

JsonText vocabulary_json(const VocabularyComparison& compared) {
  JsonText moved = JsonText::array();
  for (const MovedToken& token : compared.moved)
    moved.push_back({{"token", token.token}, {"id_a", token.id_a}, {"id_b", token.id_b}});
  JsonText first = nullptr;
  if (compared.first_merge)
    first = {{"index", compared.first_merge->index},
             {"a", compared.first_merge->merge_a},
             {"b", compared.first_merge->merge_b}};
  return {{"same", compared.is_same()},
          {"common", compared.num_common},
          {"only_a", compared.only_a},
          {"only_b", compared.only_b},
          {"other_ids", moved},
          {"merges",
           {{"a", compared.num_merges_a},
            {"b", compared.num_merges_b},
            {"only_a", compared.num_merges_only_a},
            {"only_b", compared.num_merges_only_b},
            {"first_difference", first}}}};
}

JsonText comparison_json(const TextComparison& text) {
  JsonText first = nullptr;
  if (text.first)
    first = {{"file", text.first->file},
             {"line", text.first->line},
             {"token", text.first->index},
             {"id_a", text.first->id_a},
             {"id_b", text.first->id_b}};
  return {{"a", text_json(text.a, text.words_a)},
          {"b", text_json(text.b, text.words_b)},
          {"first_difference", first}};
}

void print_vocabularies(const OpenedTokenizer& a, const OpenedTokenizer& b,
                        const VocabularyComparison& compared) {
  std::cout << "A: " << a.about.file << ": " << summary_of(a.about) << "\n"
            << "B: " << b.about.file << ": " << summary_of(b.about) << "\n";
  if (compared.compares_texts)
    std::cout << "the vocabularies are spelled differently; the texts of their tokens are "
                 "compared\n";
  print_rows({{"tokens only in A", shown(compared.only_a)},
              {"tokens only in B", shown(compared.only_b)},
              {"tokens with other ids", shown(compared.moved, compared.num_common)},
              {"merges", shown_merges(compared)}});
}

/// Returns the options for `file`. --tiktoken-pattern may suit only one of the two tokenizers.
TokenizerCommandOptions options_for(TokenizerCommandOptions options, const std::string& file,
                                    const std::string& other) {
  const auto is_tiktoken = [&](const std::string& path) {
    TokenizerConfig config = options.tokenizer;
    config.tokenizer_model = path;
    return fs::exists(path) && tokenizer_type(config) == "TikTokenizer";
  };
  if (!options.tokenizer.tiktoken_pattern.empty() && is_tiktoken(other) && !is_tiktoken(file))
    options.tokenizer.tiktoken_pattern.clear();
  return options;
}

}  // namespace

int run_tokenizer_diff(const TokenizerCommandOptions& options) {
  const std::vector<std::string>& files = options.files;
  if (files.size() != 2)
    throw UserError({"diff needs two tokenizers", std::to_string(files.size()) + " are given",
                     "megatron tokenizer diff a/tokenizer.json b/tokenizer.json"});
  const OpenedTokenizer a = open_tokenizer(options_for(options, files[0], files[1]), files[0]),
                        b = open_tokenizer(options_for(options, files[1], files[0]), files[1]);
  const VocabularyComparison compared =
      compare_vocabularies({*a.tokenizer, a.about.spelling, merges_of(a.config)},
                           {*b.tokenizer, b.about.spelling, merges_of(b.config)});
  JsonText json = {{"a", a.about.file}, {"b", b.about.file}};
  json["vocabulary"] = vocabulary_json(compared);
  if (!options.json) print_vocabularies(a, b, compared);
  if (!options.text.empty()) {
    const TextComparison text = compare_texts(options, a, b);
    json["text"] = comparison_json(text);
    if (!options.json) print_text(a, b, text);
  }
  if (options.json) std::cout << json.dump(2) << "\n";
  return 0;
}

}  // namespace megatron
