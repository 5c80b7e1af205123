// Implements `megatron tokenizer info` and `diff`.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <tuple>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/cli/tokenizer_command.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/text_corpus.h"
#include "megatron/tokenizers/tokenizer_summary.h"

namespace megatron {
namespace {

constexpr std::size_t kSpecialTokensShown = 20, kTokensShown = 10;

/// Opens the tokenizer of a file or folder.
std::unique_ptr<Tokenizer> open_tokenizer(const TokenizerCommandOptions& options,
                                          const std::string& file) {
  TokenizerConfig config = options.tokenizer;
  config.tokenizer_model = file;
  if (!fs::exists(file)) throw UserError({file + " does not exist", "", "check the path"});
  return make_tokenizer(config);
}

/// Counts of the texts that a worker has encoded.
struct TextCounts {
  std::size_t bytes = 0, tokens = 0, unknown_tokens = 0;

  void add(std::string_view text, const std::vector<std::int32_t>& ids, std::int32_t unk) {
    bytes += text.size();
    tokens += ids.size();
    if (unk >= 0) unknown_tokens += static_cast<std::size_t>(std::ranges::count(ids, unk));
  }
  void merge(const TextCounts& other) {
    bytes += other.bytes;
    tokens += other.tokens;
    unknown_tokens += other.unknown_tokens;
  }
  double bytes_per_token() const {
    return tokens == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(tokens);
  }
  std::string words() const {
    return std::to_string(tokens) + " tokens, " + std::to_string(unknown_tokens) + " unknown, " +
           format("%.3f", bytes_per_token()) + " bytes per token";
  }
  JsonText json() const {
    return {{"bytes", bytes},
            {"tokens", tokens},
            {"bytes_per_token", bytes_per_token()},
            {"unknown_tokens", unknown_tokens}};
  }
};

void check_not_empty(const TextCounts& counts) {
  if (counts.bytes == 0) throw UserError({"--text holds no text", "", "check the file"});
}

TextCounts count_text(const TokenizerCommandOptions& options, const Tokenizer& tokenizer) {
  std::vector<TextCounts> parts(static_cast<std::size_t>(options.workers));
  read_text_corpus(options.corpus(options.text), [&](const CorpusText& text) {
    parts[text.worker].add(text.text, tokenizer.encode(text.text), tokenizer.unk());
  });
  TextCounts all;
  for (const TextCounts& part : parts) all.merge(part);
  check_not_empty(all);
  return all;
}

/// The first place of a text where the ids differ.
struct IdDifference {
  std::uint64_t chunk = 0;
  std::int64_t line = 0;
  std::size_t index = 0;  ///< of the token in its document
  std::string file;
  std::int32_t id_a = -1, id_b = -1;  ///< −1: the ids have ended
};

struct TextComparison {
  TextCounts a, b;
  std::optional<IdDifference> first;

  void see(const IdDifference& other) {
    if (!first || std::tie(other.chunk, other.line) < std::tie(first->chunk, first->line))
      first = other;
  }
  void merge(const TextComparison& other) {
    a.merge(other.a);
    b.merge(other.b);
    if (other.first) see(*other.first);
  }
};

TextComparison compare_texts(const TokenizerCommandOptions& options, const Tokenizer& a,
                             const Tokenizer& b) {
  std::vector<TextComparison> parts(static_cast<std::size_t>(options.workers));
  read_text_corpus(options.corpus(options.text), [&](const CorpusText& text) {
    TextComparison& part = parts[text.worker];
    const auto ids_a = a.encode(text.text), ids_b = b.encode(text.text);
    part.a.add(text.text, ids_a, a.unk());
    part.b.add(text.text, ids_b, b.unk());
    const auto [at_a, at_b] = std::ranges::mismatch(ids_a, ids_b);
    if (at_a == ids_a.end() && at_b == ids_b.end()) return;
    part.see({.chunk = text.chunk_number,
              .line = text.line,
              .index = static_cast<std::size_t>(at_a - ids_a.begin()),
              .file = text.chunk.file,
              .id_a = at_a == ids_a.end() ? -1 : *at_a,
              .id_b = at_b == ids_b.end() ? -1 : *at_b});
  });
  TextComparison all;
  for (const TextComparison& part : parts) all.merge(part);
  check_not_empty(all.a);
  return all;
}

/// Returns the roles that the tokenizer gives a special token.
std::string role_of(const Tokenizer& tokenizer, std::int32_t id) {
  std::string role;
  const auto add = [&](std::int32_t of, const char* name) {
    if (of == id) role += (role.empty() ? "" : ", ") + std::string(name);
  };
  add(tokenizer.eod(), "end of document");
  add(tokenizer.bos(), "beginning");
  add(tokenizer.pad(), "padding");
  add(tokenizer.unk(), "unknown");
  return role;
}

/// Returns the number of `items` and write(item) for the first `limit` of them.
template <class Item, class Write>
std::string counted_list(const std::vector<Item>& items, std::size_t limit, const Write& write,
                         const std::string& of = "") {
  std::string text = std::to_string(items.size()) + of;
  for (std::size_t i = 0; i < std::min(items.size(), limit); ++i)
    text += (i == 0 ? ": " : ", ") + write(items[i]);
  return text + (items.size() > limit ? ", …" : "");
}

/// Returns the token as a JSON string; bytes that are no UTF-8 become U+FFFD.
std::string quoted_token(const std::string& token) { return JsonText(token).dump(); }

/// Returns the token of an id with the id.
std::string shown_id(const Tokenizer& tokenizer, std::int32_t id) {
  return id < 0 ? "the end" : std::to_string(id) + " " + quoted_token(tokenizer.token(id));
}

void print_info(const std::string& file, const Tokenizer& tokenizer,
                const TokenizerSummary& summary) {
  std::cout << file << ": " << tokenizer.name() << "\n"
            << "  tokens          " << summary.num_tokens << "\n"
            << "  vocabulary size " << tokenizer.vocab_size() << "\n"
            << "  special tokens  "
            << counted_list(summary.special_tokens, kSpecialTokensShown,
                            [&](const NamedToken& token) {
                              const std::string role = role_of(tokenizer, token.id);
                              return token.token + " " + std::to_string(token.id) +
                                     (role.empty() ? "" : " (" + role + ")");
                            })
            << "\n";
}

JsonText info_json(const std::string& file, const Tokenizer& tokenizer,
                   const TokenizerSummary& summary) {
  JsonText special_tokens = JsonText::array();
  for (const auto& [id, token] : summary.special_tokens)
    special_tokens.push_back({{"id", id}, {"token", token}});
  const auto id = [](std::int32_t of) { return of < 0 ? JsonText(nullptr) : JsonText(of); };
  return {{"file", file},
          {"type", std::string(tokenizer.name())},
          {"tokens", summary.num_tokens},
          {"vocab_size", tokenizer.vocab_size()},
          {"eod", id(tokenizer.eod())},
          {"bos", id(tokenizer.bos())},
          {"pad", id(tokenizer.pad())},
          {"unk", id(tokenizer.unk())},
          {"special_tokens", special_tokens}};
}

void print_vocabularies(const VocabularyComparison& compared) {
  const auto write_moved = [](const MovedToken& moved) {
    return quoted_token(moved.token) + " " + std::to_string(moved.id_a) + " and " +
           std::to_string(moved.id_b);
  };
  std::cout << "  tokens only in A       "
            << counted_list(compared.only_a, kTokensShown, quoted_token) << "\n"
            << "  tokens only in B       "
            << counted_list(compared.only_b, kTokensShown, quoted_token) << "\n"
            << "  tokens with other ids  "
            << counted_list(compared.moved, kTokensShown, write_moved,
                            " of " + std::to_string(compared.num_common))
            << "\n";
}

void print_texts(const Tokenizer& a, const Tokenizer& b, const TextComparison& text) {
  std::cout << "text: " << text.a.bytes << " bytes\n  A: " << text.a.words()
            << "\n  B: " << text.b.words() << "\n";
  if (!text.first) {
    std::cout << "the ids are the same\n";
    return;
  }
  std::cout << "the ids differ first in " << text.first->file << ":" << text.first->line
            << ", token " << text.first->index << ": " << shown_id(a, text.first->id_a) << " and "
            << shown_id(b, text.first->id_b) << "\n";
}

JsonText diff_json(const VocabularyComparison& compared) {
  JsonText moved = JsonText::array();
  for (const MovedToken& token : compared.moved)
    moved.push_back({{"token", token.token}, {"id_a", token.id_a}, {"id_b", token.id_b}});
  return {{"same", compared.is_same()},
          {"common", compared.num_common},
          {"only_a", compared.only_a},
          {"only_b", compared.only_b},
          {"other_ids", moved}};
}

JsonText texts_json(const TextComparison& text) {
  JsonText first = nullptr;
  if (text.first)
    first = {{"file", text.first->file},
             {"line", text.first->line},
             {"token", text.first->index},
             {"id_a", text.first->id_a},
             {"id_b", text.first->id_b}};
  return {{"a", text.a.json()}, {"b", text.b.json()}, {"first_difference", first}};
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

int run_tokenizer_info(const TokenizerCommandOptions& options) {
  const std::vector<std::string>& files = options.files;
  if (files.size() != 1)
    throw UserError({"info needs one tokenizer", std::to_string(files.size()) + " are given",
                     "megatron tokenizer info tokenizer.json --text corpus.txt"});
  const auto tokenizer = open_tokenizer(options, files[0]);
  const TokenizerSummary summary = summarize(*tokenizer);
  JsonText json = info_json(files[0], *tokenizer, summary);
  if (!options.json) print_info(files[0], *tokenizer, summary);
  if (!options.text.empty()) {
    const TextCounts counts = count_text(options, *tokenizer);
    json["text"] = counts.json();
    if (!options.json)
      std::cout << "text: " << counts.bytes << " bytes, " << counts.words() << "\n";
  }
  if (options.json) std::cout << json.dump(2) << "\n";
  return 0;
}

int run_tokenizer_diff(const TokenizerCommandOptions& options) {
  const std::vector<std::string>& files = options.files;
  if (files.size() != 2)
    throw UserError({"diff needs two tokenizers", std::to_string(files.size()) + " are given",
                     "megatron tokenizer diff a/tokenizer.json b/tokenizer.json"});
  const auto a = open_tokenizer(options_for(options, files[0], files[1]), files[0]),
             b = open_tokenizer(options_for(options, files[1], files[0]), files[1]);
  const VocabularyComparison compared = compare_vocabularies(*a, *b);
  JsonText json = {{"a", files[0]}, {"b", files[1]}};
  json["vocabulary"] = diff_json(compared);
  if (!options.json) {
    std::cout << "A: " << files[0] << ": " << a->name() << ", " << a->vocab_size() << " ids\n"
              << "B: " << files[1] << ": " << b->name() << ", " << b->vocab_size() << " ids\n";
    print_vocabularies(compared);
  }
  if (!options.text.empty()) {
    const TextComparison text = compare_texts(options, *a, *b);
    json["text"] = texts_json(text);
    if (!options.json) print_texts(*a, *b, text);
  }
  if (options.json) std::cout << json.dump(2) << "\n";
  return 0;
}

}  // namespace megatron
