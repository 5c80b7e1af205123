#include "megatron/tokenizers/bert_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

/// Reads one token a line; its id is the number of the line.
Json read_vocabulary(const fs::path& path) {
  const std::string content = read_file(path);
  Json vocabulary = Json::object();
  std::int64_t id = 0;
  for (std::size_t at = 0; at < content.size(); ++id) {
    const std::size_t end = std::min(content.find('\n', at), content.size());
    std::string_view line = std::string_view(content).substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (replace_invalid_utf8(line))
      throw UserError({path.string() + ": line " + std::to_string(id + 1) + " is not UTF-8", "",
                       "check that the file is BERT's vocab.txt"});
    vocabulary[std::string(line)] = id;
  }
  for (const char* token : {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"})
    if (!vocabulary.contains(token))
      throw UserError({path.string() + ": token " + token + " is missing", "",
                       "check that the file is BERT's vocab.txt"});
  return vocabulary;
}

/// Returns the tokenizer.json that transformers makes of vocab.txt, without a post-processor.
Json bert_json(const fs::path& path, bool lowercase) {
  const Json vocabulary = read_vocabulary(path);
  Json added = Json::array();
  const auto add = [&](const std::string& token) {
    added.push_back({{"id", vocabulary.at(token)},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  };
  for (const char* token : {"[UNK]", "[SEP]", "[CLS]", "[PAD]", "[MASK]"}) add(token);
  for (const auto& [token, id] : vocabulary.items())  // as exports write them
    if (token == "[BOS]" || token == "[EOS]" || token.starts_with(kSentinelPrefix)) add(token);
  return {{"added_tokens", added},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", true},
            {"strip_accents", nullptr},
            {"lowercase", lowercase}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 100},
            {"vocab", vocabulary}}}};
}

}  // namespace

BertTokenizer::BertTokenizer(const fs::path& vocab_file, bool lowercase, std::int64_t max_ids)
    : tokenizer_({std::make_shared<const Json>(bert_json(vocab_file, lowercase))}, "",
                 vocab_file.string()),
      name_(lowercase ? "BertWordPieceLowerCase" : "BertWordPieceCase"),
      bos_(tokenizer_.find("[BOS]")),
      eos_(tokenizer_.find("[EOS]")),
      vocab_size_(tokenizer_.vocab_size()) {
  for (std::int32_t* id : {&bos_, &eos_})
    if (*id < 0 && vocab_size_ < max_ids) *id = static_cast<std::int32_t>(vocab_size_++);
}

std::int32_t BertTokenizer::find(std::string_view token) const {
  if (token == "[BOS]") return bos_;
  return token == "[EOS]" ? eos_ : tokenizer_.find(token);
}

}  // namespace megatron
