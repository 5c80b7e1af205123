#include "megatron/tokenizers/tiktoken/vocabulary_file.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/tokenizers/base64.h"
#include "megatron/tokenizers/tiktoken/named_pattern.h"
#include "megatron/tokenizers/vocabulary.h"

namespace megatron::tiktoken {
namespace {

using simdjson::ondemand::array;
using simdjson::ondemand::object;

constexpr const char* kWholeFile = "check that the file is whole";

void check_bytes(const BytePairRanks& ranks, const std::string& source) {
  if (const int byte = ranks.missing_byte(); byte >= 0)
    throw UserError({source + ": the token of byte " + std::to_string(byte) + " is missing", "",
                     "every byte needs a token of its own"});
}

struct RankedToken {
  std::int32_t rank;
  std::string token;
};

RankedToken parse_line(std::string_view line, const std::string& where) {
  const std::size_t space = line.find(' ');
  RankedToken result{-1, {}};
  if (space != std::string_view::npos && append_base64(result.token, line.substr(0, space))) {
    const char* const end = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + space + 1, end, result.rank);
    if (error != std::errc() || stop != end || result.rank > kMaxTokenId) result.rank = -1;
  }
  if (result.rank < 0)
    throw UserError({where + " must be a token in base64, a space and its rank",
                     "\"" + std::string(line.substr(0, 80)) + "\"", kWholeFile});
  return result;
}

VocabularyFile read_lines(std::string_view content, const std::string& source,
                          const std::string& pattern) {
  std::vector<RankedToken> tokens;
  std::size_t number = 0, bytes = 0;
  for (std::size_t at = 0; at < content.size();) {
    const std::size_t end = std::min(content.find('\n', at), content.size());
    std::string_view line = content.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    tokens.push_back(parse_line(line, source + ": line " + std::to_string(number)));
    bytes += tokens.back().token.size();
  }
  const auto by_rank = [](const RankedToken& a, const RankedToken& b) { return a.rank < b.rank; };
  if (!std::is_sorted(tokens.begin(), tokens.end(), by_rank))
    std::stable_sort(tokens.begin(), tokens.end(), by_rank);
  VocabularyFile file;
  file.ranks.reserve(tokens.size(), bytes);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && tokens[i].rank == tokens[i - 1].rank)
      throw UserError({source + ": rank " + std::to_string(tokens[i].rank) + " is given twice", "",
                       kWholeFile});
    if (!file.ranks.add(tokens[i].token, tokens[i].rank))
      throw UserError(
          {source + ": the token of rank " + std::to_string(tokens[i].rank) + " is given twice", "",
           kWholeFile});
  }
  check_bytes(file.ranks, source);
  add_published_parts(file, pattern, source);
  return file;
}

[[noreturn]] void refuse(const std::string& what) { throw UserError({what, "", kWholeFile}); }

/// Adds the first `limit` entries of a list of {"rank", "token_bytes", "token_str"}.
void read_tokens(array list, std::size_t limit, std::int32_t offset, const std::string& where,
                 BytePairRanks& ranks) {
  ranks.reserve(std::min<std::size_t>(limit, kMaxTokenId), 0);
  std::string token;
  std::size_t index = 0;
  for (auto entry : list) {
    if (index == limit) return;
    const std::string place = where + "[" + std::to_string(index) + "]";
    object fields;
    std::int64_t rank = -1;
    std::string_view base64;
    if (entry.get_object().get(fields) || fields["rank"].get_int64().get(rank) ||
        fields["token_bytes"].get_string().get(base64))
      refuse(place + " must be an object with 'rank' and 'token_bytes'");
    if (rank != static_cast<std::int64_t>(index))
      refuse(place + ": field 'rank' must be " + std::to_string(index));
    token.clear();
    if (!append_base64(token, base64)) refuse(place + ": field 'token_bytes' must be base64");
    if (!ranks.add(token, offset + static_cast<std::int32_t>(index)))
      refuse(place + ": the token is given twice");
    ++index;
  }
  if (index < limit)
    refuse(where + " has " + std::to_string(index) + " tokens, and the vocabulary needs " +
           std::to_string(limit));
}

/// The twenty special tokens of tekken.json files that list none.
std::vector<std::string> first_tekken_tokens() {
  return {"<unk>",
          "<s>",
          "</s>",
          "[INST]",
          "[/INST]",
          "[AVAILABLE_TOOLS]",
          "[/AVAILABLE_TOOLS]",
          "[TOOL_RESULTS]",
          "[/TOOL_RESULTS]",
          "[TOOL_CALLS]",
          "[IMG]",
          "<pad>",
          "[IMG_BREAK]",
          "[IMG_END]",
          "[PREFIX]",
          "[MIDDLE]",
          "[SUFFIX]",
          "[SYSTEM_PROMPT]",
          "[/SYSTEM_PROMPT]",
          "[TOOL_CONTENT]"};
}

/// Numbers `names` from 0 and fills up to `count` with <SPECIAL_n>.
std::vector<SpecialToken> special_tokens(const std::vector<std::string>& names, std::int64_t count,
                                         const std::string& source) {
  if (static_cast<std::int64_t>(names.size()) > count)
    refuse(source + " has " + std::to_string(names.size()) + " special tokens, at most " +
           std::to_string(count) + " are possible");
  std::vector<SpecialToken> tokens;
  for (std::int32_t id = 0; id < count; ++id) {
    const auto at = static_cast<std::size_t>(id);
    std::string text = at < names.size() ? names[at] : "<SPECIAL_" + std::to_string(id) + ">";
    if (text.empty()) refuse(source + ": special token " + std::to_string(id) + " is empty");
    tokens.push_back({std::move(text), id});
  }
  return tokens;
}

struct TekkenConfig {
  std::string pattern;
  std::int64_t vocab_size = 0, num_special_tokens = 0;
};

TekkenConfig read_tekken_config(object root, const std::string& source) {
  object fields;
  if (root["config"].get_object().get(fields)) refuse(source + ": field 'config' is missing");
  TekkenConfig config;
  std::string_view pattern;
  const std::string where = source + ": config: field ";
  if (fields["pattern"].get_string().get(pattern)) refuse(where + "'pattern' must be a string");
  config.pattern = pattern;
  if (fields["default_vocab_size"].get_int64().get(config.vocab_size))
    refuse(where + "'default_vocab_size' must be an integer");
  if (fields["default_num_special_tokens"].get_int64().get(config.num_special_tokens))
    refuse(where + "'default_num_special_tokens' must be an integer");
  if (config.vocab_size <= 0 || config.vocab_size > kMaxTokenId || config.num_special_tokens < 0 ||
      config.num_special_tokens >= config.vocab_size)
    refuse(source + ": config: the vocabulary has " + std::to_string(config.vocab_size) +
           " tokens with " + std::to_string(config.num_special_tokens) + " special ones");
  return config;
}

std::vector<std::string> read_special_names(object root, const std::string& source) {
  array list;
  if (root["special_tokens"].get_array().get(list)) return first_tekken_tokens();
  std::vector<std::string> names;
  for (auto entry : list) {
    const std::string where = source + ": special_tokens[" + std::to_string(names.size()) + "]";
    object fields;
    std::int64_t rank = -1;
    std::string_view text;
    if (entry.get_object().get(fields) || fields["rank"].get_int64().get(rank) ||
        fields["token_str"].get_string().get(text))
      refuse(where + " must be an object with 'rank' and 'token_str'");
    if (rank != static_cast<std::int64_t>(names.size()))
      refuse(where + ": field 'rank' must be " + std::to_string(names.size()));
    names.emplace_back(text);
  }
  return names;
}

VocabularyFile read_tekken(object root, const std::string& source, const std::string& pattern) {
  const TekkenConfig config = read_tekken_config(root, source);
  VocabularyFile file;
  file.pattern = pattern.empty() ? config.pattern : pattern_named(pattern);
  array list;
  if (root["vocab"].get_array().get(list)) refuse(source + ": field 'vocab' must be an array");
  read_tokens(list, static_cast<std::size_t>(config.vocab_size - config.num_special_tokens),
              static_cast<std::int32_t>(config.num_special_tokens), source + ": vocab", file.ranks);
  file.special_tokens =
      special_tokens(read_special_names(root, source), config.num_special_tokens, source);
  file.bos = "<s>";
  file.eod = "</s>";
  file.pad = "<pad>";
  file.decodes_between_special_tokens = true;
  return file;
}

std::vector<std::string> megatron_names(const TokenizerConfig& config) {
  const std::vector<std::string> required = {"<unk>", "<s>",   "</s>", "<mask>",
                                             "<pad>", "<cls>", "<sep>"};
  if (config.tokenizer_special_tokens.empty()) return required;
  for (const std::string& name : required)
    if (std::find(config.tokenizer_special_tokens.begin(), config.tokenizer_special_tokens.end(),
                  name) == config.tokenizer_special_tokens.end())
      throw UserError({"--tokenizer-special-tokens has no " + name, "", "add it to the list"});
  return config.tokenizer_special_tokens;
}

VocabularyFile read_megatron_list(array list, const std::string& source,
                                  const TokenizerConfig& config) {
  constexpr std::int64_t kDefaultVocabSize = 131072;
  const std::int64_t size = config.vocab_size.value_or(kDefaultVocabSize),
                     specials = config.tiktoken_num_special_tokens;
  if (size > kMaxTokenId || specials >= size)
    throw UserError({"--tiktoken-num-special-tokens must be below --vocab-size",
                     std::to_string(specials) + " and " + std::to_string(size), ""});
  VocabularyFile file;
  file.pattern = pattern_named(config.tiktoken_pattern.empty() ? "v2" : config.tiktoken_pattern);
  read_tokens(list, static_cast<std::size_t>(size - specials), static_cast<std::int32_t>(specials),
              source + ": vocabulary", file.ranks);
  file.special_tokens = special_tokens(megatron_names(config), specials, source);
  file.bos = "<s>";
  file.eod = "</s>";
  file.pad = "<pad>";
  file.encodes_special_tokens = true;
  return file;
}

VocabularyFile read_json_file(const std::filesystem::path& path, const TokenizerConfig& config) {
  const std::string source = path.string();
  simdjson::padded_string content;
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document;
  simdjson::ondemand::json_type type{};
  if (simdjson::padded_string::load(source).get(content) || parser.iterate(content).get(document) ||
      document.type().get(type))
    refuse(source + " is not valid JSON");
  VocabularyFile file;
  if (type == simdjson::ondemand::json_type::array) {
    array list;
    if (document.get_array().get(list)) refuse(source + " is not valid JSON");
    file = read_megatron_list(list, source, config);
  } else {
    object root;
    if (document.get_object().get(root)) refuse(source + " must be a JSON object or array");
    file = read_tekken(root, source, config.tiktoken_pattern);
  }
  check_bytes(file.ranks, source);
  return file;
}

}  // namespace

VocabularyFile read_vocabulary_file(const std::filesystem::path& path,
                                    const TokenizerConfig& config) {
  const MappedFile file(path);
  const std::string_view content(reinterpret_cast<const char*>(file.data()), file.size());
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos)
    throw UserError({"--tokenizer-model " + path.string() + " is empty", "", kWholeFile});
  if (content[first] == '{' || content[first] == '[') return read_json_file(path, config);
  return read_lines(content, path.string(), config.tiktoken_pattern);
}

}  // namespace megatron::tiktoken
