#include "megatron/inference/stored_tokenizer.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/config/settings_tables.h"

namespace megatron {

namespace fs = std::filesystem;

namespace {

bool names_a_tokenizer(const TokenizerConfig& config) {
  return !config.tokenizer_type.empty() || !config.tokenizer_model.empty() || !config.vocab_file.empty();
}

/// The tokenizer's settings of the run that saved the checkpoint.
TokenizerConfig trained_with(const Manifest& manifest) {
  TokenizerConfig config;
  for (const Field& field : tokenizer_table().set().fields) {
    const auto found = manifest.settings->find(field.name);
    if (found == manifest.settings->end() || !found->is_string()) continue;
    const std::string text = found->get<std::string>();
    if (!text.empty() && !is_none(text)) assign(field, &config, std::span(&text, 1));
  }
  return config;
}

/// The folder that holds `name` among a checkpoint's carried files; empty when none does.
fs::path carried_folder(const CheckpointSource& source, const Manifest& manifest, const std::string& name) {
  for (const auto& [path, checksum] : manifest.files) {
    if (fs::path(path).filename() == name) return source.folder / fs::path(path).parent_path();
  }
  return {};
}

TokenizerConfig stored_config(const CheckpointSource& source) {
  fs::path folder = source.folder;
  if (source.kind == CheckpointSource::Kind::megatron) {
    const Manifest manifest = read_manifest(source.folder);
    if (const TokenizerConfig config = trained_with(manifest); names_a_tokenizer(config)) return config;
    folder = carried_folder(source, manifest, "tokenizer.json");
    if (folder.empty()) folder = carried_folder(source, manifest, "vocab.json");
  }
  TokenizerConfig config;
  if (!folder.empty() && (fs::exists(folder / "tokenizer.json") || fs::exists(folder / "vocab.json"))) config.tokenizer_model = folder.string();
  return config;
}

/// eos_token_id of generation_config.json: one id or a list.
std::vector<std::int64_t> end_of_text_ids(const CheckpointSource& source) {
  const auto found = source.carried.find("generation_config.json");
  if (found == source.carried.end()) return {};
  const std::string place = (source.folder / found->first).string();
  const Json config = parse_json(found->second, place);
  if (!config.is_object()) throw UserError({place, config.type_name(), "expected an object"});
  const auto ids = config.find("eos_token_id");
  if (ids == config.end() || ids->is_null()) return {};
  std::vector<std::int64_t> result;
  for (const Json& id : ids->is_array() ? *ids : Json::array({*ids})) {
    if (!id.is_number_integer()) throw UserError({place + ": eos_token_id", ids->dump(), "expected a token id or a list of them"});
    result.push_back(id.get<std::int64_t>());
  }
  return result;
}

}  // namespace

StoredTokenizer open_tokenizer(const TokenizerConfig& flags, const CheckpointSource& source) {
  StoredTokenizer result;
  if (names_a_tokenizer(flags)) {
    result.tokenizer = make_tokenizer(flags);
  } else {
    const TokenizerConfig config = stored_config(source);
    if (!names_a_tokenizer(config)) {
      throw UserError(
          {"--load " + source.folder.string(), "no tokenizer is stored with these weights", "give --tokenizer-type or --tokenizer-model"});
    }
    result.tokenizer = make_tokenizer(config);
    result.stop_ids = end_of_text_ids(source);
  }
  if (result.tokenizer->eod() >= 0) result.stop_ids.push_back(result.tokenizer->eod());
  return result;
}

}  // namespace megatron
