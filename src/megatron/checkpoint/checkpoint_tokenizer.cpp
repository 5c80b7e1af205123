#include "megatron/checkpoint/checkpoint_tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {
namespace {

constexpr std::array kIdKeys{"bos_token_id", "eos_token_id", "pad_token_id",
                             "decoder_start_token_id"};

/// Returns the tokenizer settings of the run that saved the checkpoint.
TokenizerConfig saved_tokenizer_config(const Manifest& manifest) {
  TokenizerConfig config;
  read_saved_fields(*manifest.settings, tokenizer_table().set(), &config);
  config.tokenizer_metadata.clear();  // its type and its chat template are stored
  return config;
}

/// Returns the folder that holds the auxiliary file `name`; empty when the checkpoint has none.
fs::path auxiliary_folder(const fs::path& folder, const Manifest& manifest,
                          const std::string& name) {
  for (const auto& [path, checksum] : manifest.files) {
    if (fs::path(path).filename() == name) return folder / fs::path(path).parent_path();
  }
  return {};
}

constexpr std::array kVocabularyFiles{"tokenizer.json",      "tokenizer.model", "vocab.json",
                                      "merges.txt",          "tekken.json",     "vocab.tiktoken",
                                      "vocab.tiktoken.json", "vocab.txt"};
/// Those that are a whole vocabulary by themselves.
constexpr std::array kSingleFiles{"tokenizer.json",      "tokenizer.model", "tekken.json",
                                  "vocab.tiktoken.json", "vocab.tiktoken",  "vocab.txt"};

bool has_any(const AuxiliaryFiles& files, std::span<const char* const> names) {
  return std::ranges::any_of(names, [&](const char* name) { return files.contains(name); });
}

bool is_byte_tokenizer(const TokenizerConfig& config) {
  return config.tokenizer_type == "ByteTokenizer";
}

void remove_special_token_ids(AuxiliaryFiles& files) {
  files.erase("generation_config.json");
  const auto config = files.find("config.json");
  if (config == files.end()) return;
  Json json = parse_python_json(config->second, "the config.json of the source");
  if (!json.is_object()) return;
  for (const char* key : kIdKeys) json.erase(key);
  config->second = json.dump(2) + "\n";
}

bool is_bert(const Tokenizer& tokenizer) { return tokenizer.name().starts_with("BertWordPiece"); }

/// Adds to a vocab.txt the tokens behind it, each a line, whose number is the id.
void complete_vocabulary(const Tokenizer& tokenizer, std::int64_t num_sentinels,
                         std::string& vocabulary) {
  if (!vocabulary.ends_with('\n')) vocabulary += '\n';
  std::int64_t ids = std::ranges::count(vocabulary, '\n');
  for (; ids < tokenizer.vocab_size(); ++ids)
    vocabulary += tokenizer.token(static_cast<std::int32_t>(ids)) + '\n';
  if (ids != tokenizer.vocab_size()) return;
  for (std::int64_t i = 0; i < num_sentinels; ++i) vocabulary += sentinel_token(i) + '\n';
}

/// Returns a tokenizer_config.json. Without it, transformers guesses the special tokens from the
/// model's family.
std::string tokenizer_config_json(const Tokenizer& tokenizer, const AddedIds& added) {
  const bool is_gpt2 = tokenizer.name() == "GPT2BPETokenizer";
  Json json = {{"tokenizer_class", is_gpt2              ? "GPT2Tokenizer"
                                   : is_bert(tokenizer) ? "BertTokenizer"
                                                        : "PreTrainedTokenizerFast"},
               {"clean_up_tokenization_spaces", false}};
  if (is_bert(tokenizer)) json["do_lower_case"] = tokenizer.name() == "BertWordPieceLowerCase";
  const auto name = [&](const char* key, std::int32_t id) {
    const std::string text = id < 0 ? ""
                             : added.num_rows > 0
                                 ? tokenizer.token(id)
                                 : tokenizer.decode(std::array{id}, SpecialTokens::keep);
    if (id >= 0 && tokenizer.name() == "ByteTokenizer")
      json[key] = kByteTokenizerEod;
    else if (!text.empty())  // BERT's [BOS] and [EOS] may be in no file
      json[key] = text;
  };
  name("bos_token", is_gpt2 ? tokenizer.eod() : tokenizer.bos());
  name("eos_token", tokenizer.eod());
  name("pad_token", tokenizer.pad());
  if (is_gpt2) name("unk_token", tokenizer.eod());
  for (std::int64_t i = 0; i < added.num_sentinels; ++i)
    json["additional_special_tokens"].push_back(sentinel_token(i));
  return json.dump(2) + "\n";
}

}  // namespace

TokenizerConfig stored_tokenizer(const Manifest& manifest, const fs::path& folder) {
  TokenizerConfig config = saved_tokenizer_config(manifest);
  const std::string& type = config.tokenizer_type;
  if (type.starts_with("Null") || type == "ByteTokenizer") return config;
  fs::path carried;
  for (const char* name : kSingleFiles)
    if (carried.empty() && type != "GPT2BPETokenizer" &&
        (!reads_tokenizer_json(type) || name == kSingleFiles.front()))
      carried = auxiliary_folder(folder, manifest, name);
  if (carried.empty() && !reads_tokenizer_json(type))
    carried = auxiliary_folder(folder, manifest, "vocab.json");
  if (carried.empty()) return config;
  config.tokenizer_model = carried.string();
  config.vocab_file.clear();
  config.merge_file.clear();
  return config;
}

TokenizerConfig stored_tokenizer(const fs::path& hf_folder) {
  TokenizerConfig config;
  const bool is_gpt2 = fs::exists(hf_folder / "vocab.json") && fs::exists(hf_folder / "merges.txt");
  if (is_gpt2 || std::ranges::any_of(
                     kSingleFiles, [&](const char* name) { return fs::exists(hf_folder / name); }))
    config.tokenizer_model = hf_folder.string();
  return config;
}

bool has_tokenizer_files(const AuxiliaryFiles& files) {
  return has_any(files, kSingleFiles) ||
         (files.contains("vocab.json") && files.contains("merges.txt"));
}

std::optional<bool> same_vocabulary(const AuxiliaryFiles& left, const AuxiliaryFiles& right) {
  const auto both_have = [&](const char* name) {
    return left.contains(name) && right.contains(name);
  };
  const auto same = [&](const char* name) { return left.at(name) == right.at(name); };
  if (both_have("tokenizer.json")) return same("tokenizer.json");
  if (both_have("vocab.json") && both_have("merges.txt"))
    return same("vocab.json") && same("merges.txt");
  for (const char* name : kSingleFiles)
    if (both_have(name)) return same(name);
  return std::nullopt;
}

AuxiliaryFiles hf_tokenizer_files(const TokenizerConfig& config) {
  if (is_byte_tokenizer(config)) return {{"tokenizer.json", byte_tokenizer_json()}};
  return tokenizer_files(config);
}

void replace_tokenizer_files(const AuxiliaryFiles& tokenizer, AuxiliaryFiles& files) {
  if (tokenizer.empty()) return;
  if (has_any(files, kVocabularyFiles) && !same_vocabulary(files, tokenizer).value_or(false)) {
    for (const char* name : tokenizer_file_names()) files.erase(name);
    remove_special_token_ids(files);
  }
  // A template of its own would take precedence over that of the new tokenizer_config.json.
  constexpr std::array kTemplates{"chat_template.jinja", "chat_template.json"};
  if (tokenizer.contains("tokenizer_config.json") || has_any(tokenizer, kTemplates))
    for (const char* name : kTemplates) files.erase(name);
  for (const auto& [name, text] : tokenizer) files[name] = text;
}

TokenizerConfig with_tokenizer_flags(TokenizerConfig stored, const TokenizerFlags& flags) {
  const TokenizerConfig defaults;
  for (const Field& field : tokenizer_table().set().fields) {
    const auto values = field.get(&flags.config);
    const bool is_given = flags.given.contains(field.name) || values != field.get(&defaults);
    if (is_given && field.name.find("vocab_size") == std::string::npos && !values.empty())
      assign(field, &stored, values);
  }
  if (!flags.config.chat_template.empty()) stored.chat_template = flags.config.chat_template;
  return stored;
}

Json tokenizer_to_json(const TokenizerConfig& config) {
  const TokenizerConfig named = with_resolved_type(config);
  return fields_to_json(tokenizer_table().set(), &named);
}

TokenizerExport export_tokenizer(TokenizerConfig config, AuxiliaryFiles& files,
                                 const AddedIds& model) {
  TokenizerExport result;
  if (!has_tokenizer(config)) {
    if (!has_tokenizer_files(files))
      result.notes.push_back(
          "no tokenizer is stored with these weights: give --tokenizer-model to write one beside "
          "them");
    return result;
  }
  try {
    if (!has_tokenizer_files(files) || is_byte_tokenizer(config))
      replace_tokenizer_files(hf_tokenizer_files(config), files);
    AddedIds added;
    if (model.num_rows > 0 && tokenizer_type(config).starts_with("BertWordPiece")) {
      added.num_rows = model.num_rows;
      if (!config.vocab_size) config.vocab_size = model.num_rows;  // as in training
    }
    const auto tokenizer = make_tokenizer(config);
    if (added.num_rows > 0 && files.contains("vocab.txt")) {
      if (tokenizer->find(sentinel_token(0)) < 0)
        added.num_sentinels =
            std::min(model.num_sentinels, model.num_rows - tokenizer->vocab_size());
      complete_vocabulary(*tokenizer, added.num_sentinels, files["vocab.txt"]);
    }
    if (config.tokenizer_hf_no_include_special_tokens)
      result.notes.push_back(
          "--tokenizer-hf-no-include-special-tokens is not written: programs that read the "
          "tokenizer's files add tokens at the ends of a text, so call them with "
          "add_special_tokens=False");
    // A tokenizer without bos separates documents with eod, so eod also begins a document.
    const std::int32_t begin = tokenizer->bos() >= 0 ? tokenizer->bos() : tokenizer->eod();
    if (begin >= 0) result.ids.bos = begin;
    if (tokenizer->eod() >= 0) result.ids.eos = tokenizer->eod();
    if (tokenizer->pad() >= 0) result.ids.pad = tokenizer->pad();
    result.ids.decoder_start = tokenizer->bos() >= 0 ? begin : result.ids.pad;
    if (!has_tokenizer_files(files)) {
      const std::string size =
          config.vocab_size ? " --vocab-size " + std::to_string(*config.vocab_size) : "";
      result.notes.push_back(std::string(tokenizer->name()) +
                             " has no files: generate from the folder needs --tokenizer-type " +
                             std::string(tokenizer->name()) + size);
    } else if (!files.contains("tokenizer_config.json")) {
      files["tokenizer_config.json"] = tokenizer_config_json(*tokenizer, added);
    }
  } catch (const UserError& error) {
    const std::string reason = error.parts().problem();
    const bool is_complete = has_tokenizer_files(files);
    result.notes.push_back((is_complete
                                ? "the ids of the tokens that begin and end a text are unknown: "
                                : "no tokenizer is written: ") +
                           reason + (is_complete ? "" : "; give --tokenizer-model to write one"));
  }
  return result;
}

}  // namespace megatron
