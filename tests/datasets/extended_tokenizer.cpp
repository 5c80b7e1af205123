#include "datasets/extended_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "megatron/base/json.h"
#include "megatron/config/tokenizer_config.h"

namespace megatron::test {

std::shared_ptr<const Tokenizer> with_tokens(const std::string& name,
                                             const std::vector<std::string>& tokens,
                                             const TemporaryFolder& folder) {
  Json json = read_json(MEGATRON_SOURCE_DIR "/tests/tokenizers/fixtures/" + name + ".json");
  std::int64_t id = 0;
  std::set<std::string> known;
  const auto add = [&](const std::string& token, std::int64_t number) {
    known.insert(token);
    id = std::max(id, number + 1);
  };
  const Json& vocabulary = json["model"]["vocab"];
  for (const auto& [key, value] : vocabulary.items())  // {token: id} or [[piece, score]]
    vocabulary.is_object() ? add(key, value.get<std::int64_t>())
                           : add(value[0].get<std::string>(), id);
  for (const Json& added : json["added_tokens"])
    add(added["content"].get<std::string>(), added["id"].get<std::int64_t>());
  for (const std::string& content : tokens) {
    if (known.contains(content)) continue;
    json["added_tokens"].push_back({{"id", id++},
                                    {"content", content},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  }
  TokenizerConfig config;
  config.tokenizer_type = "HuggingFaceTokenizer";
  config.tokenizer_model = folder.write(name + ".json", json.dump());
  return make_tokenizer(config);
}

}  // namespace megatron::test
