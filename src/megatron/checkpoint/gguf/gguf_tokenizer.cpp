// The tokenizer in the metadata of a GGUF file, from and to the files of a Hugging Face directory.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/protobuf.h"
#include "megatron/checkpoint/gguf/gguf_model.h"
#include "megatron/tokenizers/patterns.h"
#include "megatron/tokenizers/sentencepiece/model_file.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {
namespace {

/// llama.cpp's numbers of the kinds of tokens, which are SentencePiece's.
constexpr std::int64_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

/// A special token in tokenizer_config.json, in the metadata and in SentencePiece's trainer_spec.
struct SpecialToken {
  const char *theirs, *key;
  int field;
};
constexpr SpecialToken kSpecialTokens[] = {{"unk_token", "unknown_token_id", 45},
                                           {"bos_token", "bos_token_id", 46},
                                           {"eos_token", "eos_token_id", 47},
                                           {"pad_token", "padding_token_id", 48}};

/// How byte-level BPE divides text into words, and llama.cpp's name for it.
struct Splitting {
  std::string_view name;
  std::string_view regex;  ///< "": that of GPT-2
  bool splits_digits = false;
};
constexpr Splitting kSplittings[] = {{"gpt-2", ""},
                                     {"smollm", "", true},
                                     {"llama-bpe", patterns::kLlama3},
                                     {"qwen2", patterns::kQwen}};

/// Returns the pre_tokenizer of tokenizer.json.
Json pre_tokenizer_of(const Splitting& splitting) {
  Json parts = Json::parse(R"([{"type": "Digits", "individual_digits": true},
    {"type": "Split", "pattern": {}, "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true}])");
  parts[2]["use_regex"] = splitting.regex.empty();
  parts[1]["pattern"]["Regex"] = splitting.regex;
  if (splitting.regex.empty()) parts.erase(1);
  if (!splitting.splits_digits) parts.erase(0);
  return {{"type", "Sequence"}, {"pretokenizers", parts}};
}

/// Returns the row of a pre_tokenizer; null when llama.cpp has no name for it.
const Splitting* find_splitting(Json given) {
  if (given.is_object() && given.value("type", "") != "Sequence")
    given = {{"type", "Sequence"}, {"pretokenizers", Json::array({given})}};
  if (given.is_object())
    for (Json& part : given["pretokenizers"]) {
      if (!part.is_object() || part.value("type", "") != "ByteLevel") continue;
      part["trim_offsets"] = true;  // which changes no id
      part.emplace("use_regex", true);
    }
  const auto found = std::ranges::find(kSplittings, given, pre_tokenizer_of);
  return found == std::end(kSplittings) ? nullptr : found;
}

Json read_if_there(const fs::path& path) {
  return fs::exists(path) ? read_json(path) : Json::object();
}

/// The tokens of a vocabulary by id.
struct Tokens {
  std::vector<std::string> texts = {};
  std::vector<std::int64_t> kinds = {};

  void set(std::int64_t id, const std::string& text, std::int64_t kind) {
    if (id < 0 || id >= std::ssize(texts))
      throw UserError("token '" + text + "' has an id beyond the model's vocabulary");
    texts[static_cast<std::size_t>(id)] = text;
    kinds[static_cast<std::size_t>(id)] = kind;
  }
};

void add_byte_level(const JsonCursor& json, Tokens& tokens, Json& metadata) {
  const Splitting* splitting = find_splitting(json["pre_tokenizer"].object());
  if (splitting == nullptr)
    throw UserError("llama.cpp has no name for how its pre_tokenizer splits text");
  for (const auto& [text, id] : json["model"]["vocab"].object().items())
    tokens.set(id.get<std::int64_t>(), text, kNormal);
  Json merges = json["model"]["merges"].array();
  for (Json& merge : merges)
    if (merge.is_array())
      merge = merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>();
  metadata["tokenizer.ggml.model"] = "gpt2";
  metadata["tokenizer.ggml.pre"] = splitting->name;
  metadata["tokenizer.ggml.merges"] = merges;
}

void add_sentencepiece(const fs::path& path, Tokens& tokens, Json& metadata) {
  const sentencepiece::ModelFile model = sentencepiece::read_model_file(path);
  if (model.type != sentencepiece::ModelType::bpe)
    throw UserError(path.string() + " is no BPE model");
  std::vector<float> scores(tokens.texts.size(), -10000);
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const sentencepiece::Piece& piece = model.pieces[id];
    tokens.set(static_cast<std::int64_t>(id), piece.text, static_cast<std::int64_t>(piece.type));
    scores[id] = piece.score;
  }
  metadata["tokenizer.ggml.model"] = "llama";
  metadata["tokenizer.ggml.pre"] = "default";
  metadata["tokenizer.ggml.scores"] = scores;
  metadata["tokenizer.ggml.add_space_prefix"] = model.normalizer.add_dummy_prefix;
}

/// Returns whether a post_processor of tokenizer.json puts a special token before a text.
bool adds_token_before(const Json& processor) {
  if (!processor.is_object()) return false;
  const Json parts = processor.value("processors", Json::array()),
             single = processor.value("single", Json::array());
  return std::ranges::any_of(parts, adds_token_before) ||
         (!single.empty() && single.front().contains("SpecialToken"));
}

constexpr const char* kBeginning = R"({"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
  "pair": [{"SpecialToken": {"type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
           {"Sequence": {"id": "B", "type_id": 1}}]})";

/// The tokenizer's entries of the metadata.
class GgufVocabulary {
 public:
  GgufVocabulary(const Json& metadata, const std::string& source) : metadata_(metadata, source) {
    for (const JsonCursor& token : at("tokens").elements()) tokens_.texts.push_back(token.text());
    if (const auto kinds = find("token_type"))
      for (const JsonCursor& kind : kinds->elements()) tokens_.kinds.push_back(kind.integer());
    tokens_.kinds.resize(tokens_.texts.size(), kNormal);
  }

  std::string tokenizer_json(const Splitting& splitting) const {
    Json json = Json::parse(byte_tokenizer_json()), added = json["added_tokens"][0];
    json["added_tokens"].clear();
    json["model"]["vocab"].clear();
    for (std::size_t id = 0; id < tokens_.texts.size(); ++id) {
      const std::string& text = tokens_.texts[id];
      const std::int64_t kind = tokens_.kinds[id];
      if (kind != kUnused) json["model"]["vocab"][text] = id;
      if (kind != kControl && kind != kUserDefined) continue;
      added.update({{"id", id}, {"content", text}, {"special", kind == kControl}});
      json["added_tokens"].push_back(added);
    }
    json["model"]["merges"] = at("merges").array();
    json["pre_tokenizer"] = pre_tokenizer_of(splitting);
    if (splitting.name == "qwen2") json["normalizer"] = {{"type", "NFC"}};
    const bool is_llama = splitting.name == "llama-bpe";
    json["model"]["ignore_merges"] = is_llama;
    const auto adds = find("add_bos_token");
    const std::string bos = token("bos_token_id");
    if (!bos.empty() && (adds ? adds->boolean() : is_llama)) {
      Json processor = Json::parse(kBeginning);
      for (const char* key : {"single", "pair"}) processor[key][0]["SpecialToken"]["id"] = bos;
      processor["special_tokens"][bos] = {
          {"id", bos}, {"ids", {at("bos_token_id").integer()}}, {"tokens", {bos}}};
      json["post_processor"] = processor;
    }
    return compact_json(json) + "\n";
  }

  /// Returns a model of SentencePiece.
  std::string sentencepiece_model() const {
    const std::vector<JsonCursor> scores = at("scores").elements();
    ProtobufWriter model, trainer, normalizer;
    for (std::size_t id = 0; id < tokens_.texts.size(); ++id)
      model.add_bytes(
          1, ProtobufWriter()
                 .add_bytes(1, tokens_.texts[id])
                 .add_float(2, id < scores.size() ? static_cast<float>(scores[id].number()) : 0)
                 .add_integer(3, static_cast<std::uint64_t>(tokens_.kinds[id]))
                 .bytes());
    trainer.add_integer(3, 2);  // BPE
    trainer.add_integer(35, std::ranges::count(tokens_.kinds, kByte) > 0 ? 1 : 0);
    for (const SpecialToken& row : kSpecialTokens)
      if (const std::string text = token(row.key); !text.empty())
        trainer.add_bytes(row.field, text);
    const auto prefix = find("add_space_prefix");
    normalizer.add_bytes(1, "identity").add_integer(3, !prefix || prefix->boolean() ? 1 : 0);
    normalizer.add_integer(4, 0);  // remove_extra_whitespaces
    return model.add_bytes(2, trainer.bytes()).add_bytes(3, normalizer.bytes()).bytes();
  }

  std::string tokenizer_config() const {
    Json config = {{"clean_up_tokenization_spaces", false}};
    for (const auto& row : std::span(kSpecialTokens).subspan(1))
      if (const std::string text = token(row.key); !text.empty()) config[row.theirs] = text;
    if (const auto adds = find("add_bos_token")) config["add_bos_token"] = adds->boolean();
    if (const auto chat = metadata_.find("tokenizer.chat_template"))
      config["chat_template"] = chat->text();
    return config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }

 private:
  JsonCursor at(const std::string& key) const { return metadata_["tokenizer.ggml." + key]; }
  std::optional<JsonCursor> find(const std::string& key) const {
    return metadata_.find("tokenizer.ggml." + key);
  }
  /// Returns the token whose id is at `key`; "" when there is none.
  std::string token(const std::string& key) const {
    const auto id = find(key);
    const auto place = id ? static_cast<std::size_t>(id->integer()) : tokens_.texts.size();
    return place < tokens_.texts.size() ? tokens_.texts[place] : "";
  }

  JsonCursor metadata_;
  Tokens tokens_;
};

}  // namespace

AuxiliaryFiles tokenizer_of_gguf(const Json& metadata, const std::string& source,
                                 std::vector<std::string>& notes) {
  const Json model = metadata.value("tokenizer.ggml.model", Json("none")),
             pre = metadata.value("tokenizer.ggml.pre", Json("default"));
  const auto splitting = std::ranges::find_if(
      kSplittings, [&](const Splitting& row) { return pre == Json(row.name); });
  const bool is_bpe = model == "gpt2" && splitting != std::end(kSplittings);
  if (!is_bpe && model != "llama") {
    notes.push_back("the tokenizer of " + source + " is not read (tokenizer.ggml.model " +
                    compact_json(model) + ", tokenizer.ggml.pre " + compact_json(pre) +
                    "): give --tokenizer-model");
    return {};
  }
  const GgufVocabulary vocabulary(metadata, source);
  AuxiliaryFiles files{{"tokenizer_config.json", vocabulary.tokenizer_config()}};
  if (is_bpe)
    files["tokenizer.json"] = vocabulary.tokenizer_json(*splitting);
  else
    files["tokenizer.model"] = vocabulary.sentencepiece_model();
  return files;
}

void add_gguf_tokenizer(const std::filesystem::path& folder, std::int64_t vocab_size,
                        Json& metadata, std::vector<std::string>& notes) try {
  const Json json = read_if_there(folder / "tokenizer.json"),
             config = read_if_there(folder / "tokenizer_config.json");
  const JsonCursor cursor(json, "tokenizer.json");
  Json found = Json::object();
  Tokens tokens{.kinds = std::vector<std::int64_t>(static_cast<std::size_t>(vocab_size), kUnused)};
  for (std::int64_t id = 0; id < vocab_size; ++id)
    tokens.texts.push_back("[PAD" + std::to_string(id) + "]");
  if (fs::exists(folder / "tokenizer.model"))
    add_sentencepiece(folder / "tokenizer.model", tokens, found);
  else if (json.empty())
    throw UserError("there is no tokenizer.json and no tokenizer.model");
  else
    add_byte_level(cursor, tokens, found);
  if (const auto added = cursor.find_given("added_tokens"))
    for (const JsonCursor& token : added->elements())
      tokens.set(token["id"].integer(), token["content"].text(),
                 token["special"].boolean() ? kControl : kUserDefined);
  for (const auto& row : std::span(kSpecialTokens).subspan(1)) {  // where config.json has none
    Json text = config.value(row.theirs, Json());
    if (text.is_object()) text = Json(text.value("content", Json()));
    const auto place = text.is_string() ? std::ranges::find(tokens.texts, text.get<std::string>())
                                        : tokens.texts.end();
    const std::string key = std::string("tokenizer.ggml.") + row.key;
    if (place != tokens.texts.end() && !metadata.contains(key))
      found[key] = static_cast<std::uint64_t>(place - tokens.texts.begin());
  }
  found["tokenizer.ggml.tokens"] = tokens.texts;
  found["tokenizer.ggml.token_type"] = tokens.kinds;
  const Json adds = config.value("add_bos_token", Json());
  if (adds.is_boolean() || !json.empty())
    found["tokenizer.ggml.add_bos_token"] =
        adds.is_boolean() ? adds : Json(adds_token_before(json.value("post_processor", Json())));
  const fs::path jinja = folder / "chat_template.jinja";
  const Json chat =
      fs::exists(jinja) ? Json(read_file(jinja)) : config.value("chat_template", Json());
  if (chat.is_string()) found["tokenizer.chat_template"] = chat;
  metadata.update(found);
} catch (const UserError& error) {
  metadata["tokenizer.ggml.model"] = "no_vocab";
  notes.push_back("the tokenizer is not in the file: " + error.parts().problem() +
                  "; programs that read it need ids");
}

}  // namespace megatron
