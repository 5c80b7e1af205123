// Implements `megatron tokenizer info`.
#include <algorithm>
#include <iostream>

#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/cli/tokenizer_report.h"
#include "megatron/datasets/text_corpus.h"

namespace megatron {
namespace {

constexpr std::size_t kLongestWords = 5, kTokensShown = 20;

/// Returns the roles that the tokenizer gives a special token.
std::string role_of(const TokenizerDescription& about, std::int32_t id) {
  std::string role;
  const auto add = [&](std::int32_t of, const char* name) {
    if (of == id) role += (role.empty() ? "" : ", ") + std::string(name);
  };
  add(about.eod, "end of document");
  add(about.bos, "beginning");
  add(about.pad, "padding");
  add(about.unk, "unknown");
  return role;
}

std::string token_list(const TokenizerDescription& about,
                       const std::vector<TokenizerDescription::NamedToken>& tokens) {
  std::string text;
  for (std::size_t i = 0; i < std::min(tokens.size(), kTokensShown); ++i) {
    text += (i == 0 ? "" : ", ") + tokens[i].token + " " + std::to_string(tokens[i].id);
    if (const std::string role = role_of(about, tokens[i].id); !role.empty())
      text += " (" + role + ")";
  }
  if (tokens.size() > kTokensShown)
    text += ", … " + std::to_string(tokens.size() - kTokensShown) + " more";
  return text.empty() ? "none" : text;
}

std::string vocabulary_text(const TokenizerDescription& about) {
  std::string text = std::to_string(about.num_tokens) + " tokens";
  if (about.num_tokens != about.id_limit)
    text += ", ids up to " + std::to_string(about.id_limit - 1);
  return text;
}

std::string coverage_text(const TokenizerDescription& about) {
  if (about.covered_bytes == 256) return "all 256 bytes, so any text";
  return std::to_string(about.covered_bytes) + " of 256 bytes, " +
         std::to_string(about.single_characters) + " characters";
}

void print_description(const TokenizerDescription& about) {
  std::cout << about.file << ": " << about.type << "\n";
  std::string model = about.model;
  if (about.num_merges >= 0) model += ", " + std::to_string(about.num_merges) + " merges";
  print_rows({{"model", model},
              {"vocabulary", vocabulary_text(about)},
              {"special tokens", token_list(about, about.special_tokens)},
              {"other added tokens", token_list(about, about.added_tokens)},
              {"normalizer", about.normalizer},
              {"pre-tokenizer", about.pre_tokenizer},
              {"post-processor", about.post_processor},
              {"decoder", about.decoder},
              {"coverage", coverage_text(about)}});
}

JsonText description_json(const TokenizerDescription& about) {
  const auto list = [](const std::vector<TokenizerDescription::NamedToken>& tokens) {
    JsonText all = JsonText::array();
    for (const auto& [id, token] : tokens) all.push_back({{"id", id}, {"token", token}});
    return all;
  };
  const auto id = [](std::int32_t of) { return of < 0 ? JsonText(nullptr) : JsonText(of); };
  return {{"file", about.file},
          {"type", about.type},
          {"model", about.model},
          {"merges", about.num_merges < 0 ? JsonText(nullptr) : JsonText(about.num_merges)},
          {"tokens", about.num_tokens},
          {"vocab_size", about.id_limit},
          {"eod", id(about.eod)},
          {"bos", id(about.bos)},
          {"pad", id(about.pad)},
          {"unk", id(about.unk)},
          {"special_tokens", list(about.special_tokens)},
          {"added_tokens", list(about.added_tokens)},
          {"normalizer", about.normalizer},
          {"pre_tokenizer", about.pre_tokenizer},
          {"post_processor", about.post_processor},
          {"decoder", about.decoder},
          {"covered_bytes", about.covered_bytes},
          {"single_characters", about.single_characters}};
}

TextStatistics encode_texts(const TokenizerCommandOptions& options, const Tokenizer& tokenizer) {
  std::vector<TextStatistics> parts(static_cast<std::size_t>(options.workers));
  read_text_corpus(options.corpus(options.text), [&](const CorpusText& text) {
    parts[text.worker].add(text.text, tokenizer.encode(text.text), tokenizer.unk());
  });
  for (std::size_t i = 1; i < parts.size(); ++i) parts[0].merge(parts[i]);
  if (parts[0].bytes == 0) throw UserError({"--text holds no text", "", "check the file"});
  return std::move(parts[0]);
}

void print_text(const TextStatistics& text, const WordStatistics& words) {
  std::cout << "text: " << text.bytes << " bytes, " << text.characters << " characters, "
            << text.words << " words\n";
  std::vector<std::vector<std::string>> rows;
  for (const auto& [label, value] : text_rows(text, words)) rows.push_back({label, value});
  for (const LongWord& word : words.longest)
    rows.push_back({&word == words.longest.data() ? "words of most tokens" : "",
                    std::to_string(word.tokens) + " " + quoted_token(word.word)});
  print_rows(rows);
}

}  // namespace

int run_tokenizer_info(const TokenizerCommandOptions& options) {
  const std::vector<std::string>& files = options.files;
  if (files.size() != 1)
    throw UserError({"info needs one tokenizer", std::to_string(files.size()) + " are given",
                     "megatron tokenizer info tokenizer.json --text corpus.txt"});
  const OpenedTokenizer opened = open_tokenizer(options, files[0]);
  JsonText json = description_json(opened.about);
  if (!options.json) print_description(opened.about);
  if (!options.text.empty()) {
    const TextStatistics text = encode_texts(options, *opened.tokenizer);
    const WordStatistics words = word_statistics(text.distinct_words, *opened.tokenizer,
                                                 opened.about.spelling, kLongestWords);
    json["text"] = text_json(text, words);
    if (!options.json) print_text(text, words);
  }
  if (options.json) std::cout << json.dump(2) << "\n";
  return 0;
}

}  // namespace megatron
