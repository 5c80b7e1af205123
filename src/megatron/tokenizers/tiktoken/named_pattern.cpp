#include "megatron/tokenizers/tiktoken/named_pattern.h"

#include <algorithm>
#include <cctype>

#include "megatron/base/error.h"
#include "megatron/tokenizers/patterns.h"

namespace megatron::tiktoken {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";
constexpr const char* kNames =
    "r50k_base, p50k_base, cl100k_base, o200k_base, llama3, qwen, tekken, v1 or v2";

std::vector<SpecialToken> end_of_text_at(std::int32_t id) {
  return {{std::string(kEndOfText), id}};
}

std::vector<SpecialToken> cl100k_tokens(std::int32_t) {
  return {{std::string(kEndOfText), 100257},
          {"<|fim_prefix|>", 100258},
          {"<|fim_middle|>", 100259},
          {"<|fim_suffix|>", 100260},
          {"<|endofprompt|>", 100276}};
}

std::vector<SpecialToken> o200k_tokens(std::int32_t) {
  return {{std::string(kEndOfText), 199999}, {"<|endofprompt|>", 200018}};
}

std::vector<SpecialToken> r50k_tokens(std::int32_t) { return end_of_text_at(50256); }

std::vector<SpecialToken> qwen_tokens(std::int32_t next) {
  std::vector<SpecialToken> tokens = end_of_text_at(next++);
  for (const char* text : {"<|im_start|>", "<|im_end|>"}) tokens.push_back({text, next++});
  for (int i = 0; i < 205; ++i) tokens.push_back({"<|extra_" + std::to_string(i) + "|>", next++});
  return tokens;
}

std::vector<SpecialToken> llama3_tokens(std::int32_t next) {
  std::vector<SpecialToken> tokens;
  const auto reserve = [&](int first, int last) {
    for (int i = first; i <= last; ++i)
      tokens.push_back({"<|reserved_special_token_" + std::to_string(i) + "|>", next++});
  };
  const auto add = [&](const char* text) { tokens.push_back({text, next++}); };
  add("<|begin_of_text|>");
  add("<|end_of_text|>");
  reserve(0, 3);
  add("<|start_header_id|>");
  add("<|end_header_id|>");
  reserve(4, 4);
  add("<|eot_id|>");
  reserve(5, 250);
  return tokens;
}

/// A published vocabulary. `ranks` is 0 when there is only a pattern.
struct Published {
  std::string_view name, pattern;
  std::size_t ranks;
  std::vector<SpecialToken> (*special_tokens)(std::int32_t next);
  std::string_view eod, bos;
};

constexpr Published kPublished[] = {
    {"r50k_base", patterns::kR50kBase, 50256, r50k_tokens, kEndOfText, ""},
    {"gpt2", patterns::kR50kBase, 50256, r50k_tokens, kEndOfText, ""},
    {"p50k_base", patterns::kR50kBase, 50280, r50k_tokens, kEndOfText, ""},
    {"cl100k_base", patterns::kCl100kBase, 100256, cl100k_tokens, kEndOfText, ""},
    {"o200k_base", patterns::kO200kBase, 199998, o200k_tokens, kEndOfText, ""},
    {"llama3", patterns::kLlama3, 128000, llama3_tokens, "<|end_of_text|>", "<|begin_of_text|>"},
    {"qwen", patterns::kQwen, 151643, qwen_tokens, kEndOfText, ""},
    {"qwen2", patterns::kQwen, 151643, qwen_tokens, kEndOfText, ""},
    {"tekken", patterns::kTekken, 0, end_of_text_at, kEndOfText, ""},
    {"v1", patterns::kMegatronV1, 0, end_of_text_at, kEndOfText, ""},
    {"v2", patterns::kTekken, 0, end_of_text_at, kEndOfText, ""},
};

const Published* find_name(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kPublished), std::end(kPublished),
                                         [&](const Published& p) { return p.name == name; });
  return found == std::end(kPublished) ? nullptr : found;
}

bool is_word(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  });
}

}  // namespace

std::string pattern_named(const std::string& name) {
  if (const Published* published = find_name(name)) return std::string(published->pattern);
  if (is_word(name))
    throw UserError({"--tiktoken-pattern names no pattern", "'" + name + "'",
                     std::string("give ") + kNames + ", or a regular expression"});
  return name;
}

void add_published_parts(VocabularyFile& file, const std::string& name, const std::string& source) {
  const std::size_t size = file.ranks.size();
  const auto* const same_size = std::find_if(std::begin(kPublished), std::end(kPublished),
                                             [&](const Published& p) { return p.ranks == size; });
  const Published* published = name.empty() ? nullptr : find_name(name);
  if (name.empty()) {
    if (same_size == std::end(kPublished))
      throw UserError(
          {source + " has " + std::to_string(size) + " tokens, which is no published vocabulary",
           "", std::string("add --tiktoken-pattern ") + kNames + ", or a regular expression"});
    published = same_size;
  }
  file.pattern = published == nullptr ? pattern_named(name) : std::string(published->pattern);
  const std::int32_t next = file.ranks.id_limit();
  if (published != nullptr && published->ranks == size) {
    file.special_tokens = published->special_tokens(next);
    file.eod = published->eod;
    file.bos = published->bos;
  } else if (file.ranks.find(kEndOfText) < 0) {
    file.special_tokens = end_of_text_at(next);
    file.eod = kEndOfText;
  }
}

}  // namespace megatron::tiktoken
