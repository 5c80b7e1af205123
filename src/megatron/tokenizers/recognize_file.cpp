#include "megatron/tokenizers/recognize_file.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"

namespace megatron {
namespace {

constexpr const char* kKnownFiles =
    "known are tokenizer.json, vocab.json beside merges.txt, SentencePiece models, tiktoken files, "
    "tekken.json and vocab.txt";

/// Returns whether the first line is "base64 rank", as in tiktoken files.
bool looks_like_tiktoken(std::string_view content) {
  constexpr std::size_t kLongestLine = 4096;
  const std::string_view head = content.substr(0, kLongestLine);
  const std::size_t end = head.find_first_of("\r\n");
  if (end == std::string_view::npos && head.size() < content.size()) return false;
  const std::string_view line = head.substr(0, end);
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0) return false;
  const auto is_base64 = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '/' || c == '=';
  };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto digits = line.substr(space + 1);
  return std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(space), is_base64) &&
         !digits.empty() && std::all_of(digits.begin(), digits.end(), is_digit);
}

/// Returns whether `head` begins like a SentencePiece model, a protobuf whose field 1 is a short
/// message with text in its own field 1.
bool looks_like_sentencepiece(std::string_view head) {
  return head.size() > 4 && head[0] == '\x0A' && static_cast<unsigned char>(head[1]) < 0x80 &&
         head[2] == '\x0A' && head[3] < head[1];
}

/// Returns the type of a vocab.txt of BERT's kind; "" for other text. A vocabulary with capital
/// letters outside of [TOKENS] keeps the case.
std::string_view wordpiece_type(std::string_view content) {
  bool has_unknown = false, has_capitals = false;
  for (std::size_t at = 0; at < content.size();) {
    const std::size_t end = std::min(content.find('\n', at), content.size());
    std::string_view line = content.substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    has_unknown = has_unknown || line == "[UNK]";
    if (!line.starts_with('['))
      has_capitals = has_capitals || std::any_of(line.begin(), line.end(),
                                                 [](char c) { return c >= 'A' && c <= 'Z'; });
  }
  if (!has_unknown) return "";
  return has_capitals ? "BertWordPieceCase" : "BertWordPieceLowerCase";
}

/// Returns the type by the first keys of a JSON object; "" when they decide nothing. It reads no
/// further than it needs to, because the vocabularies behind the keys are large.
std::string_view type_by_keys(std::string_view content) {
  bool has_config = false;
  int depth = 0;
  for (std::size_t at = 0; at < content.size(); ++at) {
    const char c = content[at];
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    if (c != '"') continue;
    const std::size_t begin = at + 1;
    for (++at; at < content.size() && content[at] != '"'; ++at)
      if (content[at] == '\\') ++at;
    if (depth != 1 || at >= content.size()) continue;
    const std::string_view key = content.substr(begin, at - begin);
    const std::size_t colon = content.find_first_not_of(" \t\r\n", at + 1);
    if (colon == std::string_view::npos || content[colon] != ':') continue;
    const std::size_t value = content.find_first_not_of(" \t\r\n", colon + 1);
    const char opening = value == std::string_view::npos ? '\0' : content[value];
    if (key == "model" && opening == '{') return "HuggingFaceTokenizer";
    if (key == "vocab" && opening == '[' && has_config) return "TikTokenizer";
    has_config = has_config || (key == "config" && opening == '{');
  }
  return "";
}

std::string_view type_of_json(const fs::path& path, std::string_view content) {
  const std::string_view type = type_by_keys(content);
  if (!type.empty()) return type;
  parse_json(content, path.string());
  if (path.filename() == "vocab.json" || fs::exists(path.parent_path() / "merges.txt"))
    return "GPT2BPETokenizer";
  throw UserError({path.string() + ": field 'model' is missing", "",
                   "give a tokenizer.json, or vocab.json beside merges.txt"});
}

std::string description(std::string_view type) {
  if (type == "SentencePieceTokenizer") return "a SentencePiece model";
  if (type == "TikTokenizer") return "a tiktoken vocabulary";
  return "a tokenizer of type " + std::string(type);
}

}  // namespace

std::string_view recognize_tokenizer_file(const fs::path& path) {
  const MappedFile file(path);
  const std::string_view content(reinterpret_cast<const char*>(file.data()), file.size());
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos)
    throw UserError(
        {"--tokenizer-model " + path.string() + " is empty", "", "check that the file is whole"});
  if (looks_like_sentencepiece(content)) return "SentencePieceTokenizer";
  if (content[first] == '{') return type_of_json(path, content);
  if (looks_like_tiktoken(content) || content.substr(first).starts_with("[{") ||
      (content[first] == '[' && path.extension() == ".json"))
    return "TikTokenizer";
  const std::string_view type = wordpiece_type(content);
  if (!type.empty()) return type;
  throw UserError({"--tokenizer-model " + path.string() + " is of no known kind", "", kKnownFiles});
}

bool reads_sentencepiece(std::string_view type) {
  return type.ends_with("SentencePieceTokenizer") || type == "Llama2Tokenizer";
}

fs::path tokenizer_file_in(const fs::path& folder, std::string_view type) {
  if (type.starts_with("BertWordPiece")) return folder / "vocab.txt";
  if (reads_sentencepiece(type) || type == "TikTokenizer")
    for (const char* name : {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
                             "tekken.json", "vocab.tiktoken", "vocab.tiktoken.json"})
      if (fs::is_regular_file(folder / name) &&
          recognize_tokenizer_file(folder / name) ==
              (reads_sentencepiece(type) ? "SentencePieceTokenizer" : "TikTokenizer"))
        return folder / name;
  if (fs::exists(folder / "tokenizer.json")) return folder / "tokenizer.json";
  if (fs::exists(folder / "vocab.json") && fs::exists(folder / "merges.txt")) return folder;
  for (const char* name :
       {"tekken.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.txt"})
    if (fs::is_regular_file(folder / name)) return folder / name;
  throw UserError({"--tokenizer-model " + folder.string() +
                       " holds no tokenizer.json and no other file of a tokenizer",
                   "", kKnownFiles});
}

void check_tokenizer_file(const fs::path& path, std::string_view type) {
  if (!fs::is_regular_file(path)) return;
  const MappedFile file(path);
  const std::string_view content(reinterpret_cast<const char*>(file.data()), file.size());
  const std::string_view found = looks_like_sentencepiece(content) ? "SentencePieceTokenizer"
                                 : looks_like_tiktoken(content)    ? "TikTokenizer"
                                                                   : "";
  if (!found.empty() && found != type)
    throw UserError({path.string() + " is " + description(found), "",
                     "give --tokenizer-type " + std::string(found) + ", or none"});
}

}  // namespace megatron
