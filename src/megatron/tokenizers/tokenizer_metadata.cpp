#include "megatron/tokenizers/tokenizer_metadata.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

using Types = std::vector<std::string_view>;

const std::map<std::string, Types, std::less<>>& types_of_libraries() {
  static const std::map<std::string, Types, std::less<>> types{
      {"huggingface", {"HuggingFaceTokenizer"}},
      {"megatron", {"GPT2BPETokenizer", "BertWordPieceLowerCase", "BertWordPieceCase"}},
      {"sentencepiece", {"SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer"}},
      {"tiktoken", {"TikTokenizer"}},
      {"byte-level", {"ByteTokenizer"}},
      {"null-text", {"NullTokenizer"}},
      {"null-multimodal", {"NullMultimodalTokenizer"}},
      {"multimodal", {"MultimodalTokenizer"}},
      {"sft", {"SFTTokenizer"}}};
  return types;
}

}  // namespace

bool TokenizerMetadata::allows(std::string_view type) const {
  return std::ranges::find(types, type) != types.end();
}

std::string_view TokenizerMetadata::default_type() const {
  return library == "megatron" ? std::string_view() : types.front();
}

TokenizerMetadata read_tokenizer_metadata(const std::filesystem::path& path) {
  const std::string source = path.string();
  const JsonCursor json(read_json(path), source);
  TokenizerMetadata metadata{.library = json["library"].text()};
  const auto found = types_of_libraries().find(metadata.library);
  if (found == types_of_libraries().end())
    throw UserError(
        {source + ": library '" + metadata.library + "' is not known", "",
         "the libraries are " +
             joined_text(types_of_libraries(), ", ", [](const auto& one) { return one.first; })});
  metadata.types = found->second;
  for (const char* own : {"class_name", "class_path"})
    if (const auto name = json.find(own); name && !(*name)->is_null())
      throw UserError({source + ": " + own + " names a class in Python", (*name)->dump(),
                       "remove the field; the tokenizer's files decide"});
  const auto chat = json.find("chat_template");
  metadata.has_chat_template = chat && !(*chat)->is_null();
  if (metadata.has_chat_template && !(*chat)->is_string())
    throw UserError(
        {source + ": chat_template must be a text", std::string((*chat)->type_name()), ""});
  return metadata;
}

}  // namespace megatron
