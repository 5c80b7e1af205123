#include "megatron/tokenizers/hugging_face/special_tokens.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/hugging_face/component.h"

namespace megatron::hugging_face {
namespace {

namespace fs = std::filesystem;

/// Returns the token in field `key`, written as "text" or {"content": "text", ...}.
std::optional<std::string> named_token(const JsonCursor& config, const std::string& key) {
  const auto value = find_given(config, key);
  if (!value) return std::nullopt;
  return (*value)->is_object() ? (*value)["content"].text() : value->text();
}

}  // namespace

SpecialTokenIds read_special_tokens(const fs::path& folder,
                                    const std::function<std::int32_t(const std::string&)>& find) {
  SpecialTokenIds ids;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path path = folder / name;
    if (!fs::exists(path)) continue;
    const JsonCursor config(read_json(path), path.string());
    if (!config->is_object())
      throw UserError(
          {path.string() + " must be a JSON object", std::string(config->type_name()), ""});
    const auto id_of = [&](const std::string& key, std::int32_t known) {
      const auto token = named_token(config, key);
      return known >= 0 || !token ? known : find(*token);
    };
    ids.bos = id_of("bos_token", ids.bos);
    ids.pad = id_of("pad_token", ids.pad);
    ids.unk = id_of("unk_token", ids.unk);
    ids.eos = id_of("eos_token", ids.eos);
    if (const auto eos = named_token(config, "eos_token"); eos && ids.eos < 0)
      throw UserError({path.string() + ": eos_token \"" + *eos +
                           "\" is not in the vocabulary of tokenizer.json",
                       "", "name a token that exists"});
  }
  for (const char* usual : {"<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "</s>"})
    if (ids.eos < 0) ids.eos = find(usual);
  return ids;
}

}  // namespace megatron::hugging_face
