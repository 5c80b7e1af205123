#include "megatron/inference/load_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/checkpoint_tokenizer.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/tokenizer_flags.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {
namespace {

/// Returns eos_token_id of generation_config.json or, without that file, of config.json: one id or
/// a list. Empty for ByteTokenizer, because those files belong to the tokenizer of the original
/// weights.
std::vector<std::int64_t> eos_token_ids(const CheckpointSource& source) {
  if (source.tokenizer.tokenizer_type == "ByteTokenizer") return {};
  auto found = source.auxiliary_files.find("generation_config.json");
  if (found == source.auxiliary_files.end()) found = source.auxiliary_files.find("config.json");
  if (found == source.auxiliary_files.end()) return {};
  const std::string place = (source.folder / found->first).string();
  const Json config = parse_python_json(found->second, place);
  if (!config.is_object()) throw UserError({place, config.type_name(), "expected an object"});
  const auto ids = config.find("eos_token_id");
  if (ids == config.end() || ids->is_null()) return {};
  std::vector<std::int64_t> result;
  for (const Json& id : ids->is_array() ? *ids : Json::array({*ids})) {
    if (!id.is_number_integer())
      throw UserError(
          {place + ": eos_token_id", ids->dump(), "expected a token id or a list of them"});
    result.push_back(id.get<std::int64_t>());
  }
  return result;
}

/// Returns the options of sampling that generation_config.json sets.
SamplingParams sampling_defaults(const CheckpointSource& source) {
  SamplingParams defaults;
  const auto file = source.auxiliary_files.find("generation_config.json");
  if (file == source.auxiliary_files.end()) return defaults;
  const std::string place = (source.folder / file->first).string();
  const JsonCursor config(parse_python_json(file->second, place), place);
  const auto number = [&](const char* key, double& to) {
    if (const auto value = config.find(key); value && !(*value)->is_null()) to = value->number();
  };
  number("temperature", defaults.temperature);
  number("top_p", defaults.top_p);
  number("min_p", defaults.min_p);
  number("repetition_penalty", defaults.repetition_penalty);
  if (const auto value = config.find("top_k"); value && !(*value)->is_null())
    defaults.top_k = std::max<std::int64_t>(0, value->integer());
  return defaults;
}

/// Returns what a decoder begins with; −1 if that is not known.
std::int64_t decoder_start(const CheckpointSource& source, const Tokenizer& tokenizer) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const auto file = source.auxiliary_files.find(name);
    if (file == source.auxiliary_files.end()) continue;
    const std::string place = (source.folder / name).string();
    const JsonCursor config(parse_python_json(file->second, place), place);
    if (const auto id = config.find_given("decoder_start_token_id")) return id->integer();
  }
  return tokenizer.bos() >= 0 ? tokenizer.bos() : tokenizer.pad();
}

std::string description(const TokenizerConfig& config) {
  if (!config.tokenizer_model.empty()) return config.tokenizer_model;
  if (!config.vocab_file.empty()) return config.vocab_file;
  return config.tokenizer_type +
         (config.vocab_size ? " with " + std::to_string(*config.vocab_size) + " ids" : "");
}

/// Compares two tokenizers by the content of their files; nullopt when they cannot be compared.
std::optional<bool> same_tokenizer(const TokenizerConfig& a, const TokenizerConfig& b) {
  const auto left = tokenizer_files(a), right = tokenizer_files(b);
  if (const auto same = same_vocabulary(left, right)) return same;
  if (!left.empty() && !right.empty()) return std::nullopt;
  return tokenizer_type(a) == tokenizer_type(b) && a.vocab_size == b.vocab_size;
}

/// Returns whether the tokenizer of the flags equals the checkpoint's; nullopt when the
/// checkpoint's is unknown.
std::optional<bool> is_checkpoint_tokenizer(const TokenizerConfig& flags,
                                            const CheckpointSource& source) {
  if (!has_tokenizer(source.tokenizer)) return std::nullopt;
  try {
    const bool had_bare_ids = tokenizer_type(source.tokenizer) == "NullTokenizer";
    if (had_bare_ids && tokenizer_type(flags) != "NullTokenizer") return std::nullopt;
    return same_tokenizer(flags, source.tokenizer);
  } catch (const UserError&) {
    return std::nullopt;  // the run's files no longer exist
  }
}

/// Warns when the tokenizer differs from the checkpoint's, because its ids then mean other text to
/// the model. Plain ids (NullTokenizer) are exempt.
void warn_of_other_tokenizer(const TokenizerConfig& flags, const CheckpointSource& source,
                             LoadedTokenizer& result) {
  const auto is_own = is_checkpoint_tokenizer(flags, source);
  if (is_own.value_or(false)) return;
  const std::int64_t size = result.tokenizer->vocab_size(), rows = source.model.vocab_size;
  if (result.tokenizer->name() == "NullTokenizer" && size == rows) return;
  if (is_own) {
    result.notes.push_back(description(flags) + " is not the tokenizer of these weights (" +
                           description(source.tokenizer) +
                           "): the model interprets its ids as different text");
  } else if (size != rows) {
    result.notes.push_back("the tokenizer has " + std::to_string(size) +
                           " ids, the model's vocabulary " + std::to_string(rows) +
                           ": check that the model was trained with it");
  }
}

/// Opens the tokenizer of a checkpoint with the settings that the flags change, and notes the flags
/// that its type does not read.
std::unique_ptr<Tokenizer> load_checkpoint_tokenizer(const TokenizerFlags& flags,
                                                     const CheckpointSource& source,
                                                     std::vector<std::string>& notes) {
  const TokenizerConfig config = with_tokenizer_flags(source.tokenizer, flags);
  const bool is_changed = config != source.tokenizer;
  for (const Field& field : tokenizer_table().set().fields) {
    if (!field.is_read_with(config.tokenizer_type) &&
        field.get(&config) != field.get(&source.tokenizer))
      notes.push_back(field.flag() + ": without effect with the checkpoint's " +
                      config.tokenizer_type);
  }
  try {
    return make_tokenizer(config);
  } catch (const UserError& error) {
    const std::string& fix = error.parts().fix;
    throw UserError({"the tokenizer of " + source.folder.string() + ": " + error.parts().what,
                     error.parts().got,
                     is_changed ? fix
                                : "give --tokenizer-type or --tokenizer-model" +
                                      (fix.empty() ? "" : "; " + fix)});
  }
}

}  // namespace

LoadedTokenizer load_tokenizer(const TokenizerFlags& flags, const CheckpointSource& source) {
  LoadedTokenizer result;
  if (has_tokenizer(flags.config)) {
    result.config = flags.config;
    result.tokenizer = make_tokenizer(flags.config);
    warn_of_other_tokenizer(flags.config, source, result);
  } else if (has_tokenizer(source.tokenizer)) {
    result.config = with_tokenizer_flags(source.tokenizer, flags);
    result.tokenizer = load_checkpoint_tokenizer(flags, source, result.notes);
    result.stop_token_ids = eos_token_ids(source);
  } else {
    throw UserError({"--load " + source.folder.string(),
                     "no tokenizer is stored with these weights",
                     "give --tokenizer-type or --tokenizer-model"});
  }
  result.defaults = sampling_defaults(source);
  if (source.model.decoder_num_layers > 0) {
    result.decoder_start = decoder_start(source, *result.tokenizer);
    if (result.decoder_start < 0)
      throw UserError({"the tokenizer has neither [BOS] nor padding for the decoder to begin with",
                       std::string(result.tokenizer->name()),
                       "use the tokenizer that the model was trained with"});
    // Of T5's tokenizers, SentencePiece's own file alone says nothing of the end.
    if (!source.model_type.empty() && result.tokenizer->name() == "SentencePieceTokenizer")
      result.encoder_end = result.tokenizer->eod();
  }
  if (result.tokenizer->eod() >= 0) result.stop_token_ids.push_back(result.tokenizer->eod());
  std::erase_if(result.stop_token_ids, [&](std::int64_t id) {  // the model never says them
    return id < 0 || id >= source.model.vocab_size;
  });
  return result;
}

}  // namespace megatron
