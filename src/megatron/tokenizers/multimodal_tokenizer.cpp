#include "megatron/tokenizers/multimodal_tokenizer.h"

#include <algorithm>
#include <array>

#include "megatron/base/error.h"
#include "megatron/config/tokenizer_config.h"

namespace megatron {
namespace {

struct TagType {
  std::string_view name;
  ImageTags tags;
};
constexpr std::array kTagTypes = {TagType{"", {}}, TagType{"nvlm", {"<Image>", "</Image>"}},
                                  TagType{"internvl", {"<img>", "</img>"}}};

/// The padding token of a format: a text, or "" for the pad_token of tokenizer_config.json.
struct Format {
  std::string_view name, pad_token;
};
constexpr std::string_view kUnknown = "unk_token";
constexpr std::string_view kLlama3Pad = "<|finetune_right_pad_id|>", kNemotronPad = "<SPECIAL_233>";
constexpr std::array kFormats = {Format{"mistral", kUnknown},
                                 Format{"llama3", "<|end_of_text|>"},
                                 Format{"llama3p1", kLlama3Pad},
                                 Format{"llama3p2", kLlama3Pad},
                                 Format{"nvlm-yi-34b", ""},
                                 Format{"chatml", ""},
                                 Format{"qwen2p0", ""},
                                 Format{"qwen2p5", ""},
                                 Format{"nemotron5", kNemotronPad},
                                 Format{"nemotron5-aligned", kNemotronPad},
                                 Format{"nemotron6-moe", "<unk>"}};

template <class Table>
const typename Table::value_type& find_or_refuse(const Table& table, const std::string& name,
                                                 const std::string& flag) {
  const auto found = std::ranges::find(table, name, &Table::value_type::name);
  if (found != table.end()) return *found;
  std::string names;
  for (const auto& entry : table)
    if (!entry.name.empty()) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  throw UserError({flag + " " + name + " does not exist", "", "use one of " + names});
}

}  // namespace

ImageTags image_tags(const std::string& type) {
  return find_or_refuse(kTagTypes, type, "--image-tag-type").tags;
}

std::string ImageTags::add_to(std::string_view text) const {
  std::string tagged;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t image = std::min(text.find(kImageToken, at), text.size());
    tagged += text.substr(at, image - at);
    if (image < text.size()) tagged.append(before).append(kImageToken).append(after);
    at = image + kImageToken.size();
  }
  return tagged;
}

MultimodalTokenizer::MultimodalTokenizer(const std::filesystem::path& path,
                                         const TokenizerConfig& config)
    : HuggingFaceTokenizer(path, config.tokenizer_special_tokens),
      prompt_{.format = config.tokenizer_prompt_format,
              .image_tag_type = config.image_tag_type,
              .force_system_message = config.force_system_message},
      tags_(image_tags(config.image_tag_type)),
      pad_(HuggingFaceTokenizer::pad()) {
  if (prompt_.format.empty()) return;
  const Format& format = find_or_refuse(kFormats, prompt_.format, "--tokenizer-prompt-format");
  if (!format.pad_token.empty()) {
    const std::int32_t unknown = special_tokens().unk;
    pad_ = format.pad_token == kUnknown ? unknown : find(format.pad_token);
    if (pad_ < 0) pad_ = unknown;
  }
  if (prompt_.format == "nvlm-yi-34b") begin_with_bos("--tokenizer-prompt-format nvlm-yi-34b");
}

std::vector<std::int32_t> MultimodalTokenizer::encode(std::string_view text) const {
  return HuggingFaceTokenizer::encode(tags_.add_to(text));
}

}  // namespace megatron
