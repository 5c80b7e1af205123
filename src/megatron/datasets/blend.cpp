#include "megatron/datasets/blend.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"
#include "megatron/config/data_config.h"
#include "megatron/config/field_values.h"
#include "megatron/datasets/split.h"

namespace megatron {
namespace {

/// Reads a --per-split-data-args-path file. Its fields train, valid and test hold a list, a string
/// of words, or null.
std::array<std::optional<Blend>, 3> read_per_split_file(const std::string& path) {
  const JsonCursor file(read_json(path), path);
  std::array<std::optional<Blend>, 3> blends;
  for (const Split split : kSplits) {
    const std::string key(split_name(split));
    const JsonCursor cursor = file[key];
    const Json& value = *cursor;
    const std::string source = cursor.name();
    std::vector<std::string> words;
    if (value.is_null()) continue;
    if (value.is_string()) {
      words = split_words(value.get<std::string>());
    } else if (value.is_array()) {
      for (const Json& word : value) {
        if (word.is_string()) {
          words.push_back(word.get<std::string>());
        } else if (word.is_number()) {
          words.push_back(word.dump());
        } else {
          throw UserError({source + " must hold prefixes and weights", word.dump(), ""});
        }
      }
    } else {
      throw UserError({source + " must be a list, a string or null", value.dump(), ""});
    }
    if (!words.empty()) blends[static_cast<std::size_t>(split)] = parse_blend(words, source);
  }
  return blends;
}

}  // namespace

Blend parse_blend(const std::vector<std::string>& list, const std::string& source) {
  if (list.empty())
    throw UserError(
        {source + " is empty", "", "give at least one path prefix of a .bin/.idx pair"});
  std::size_t numbers = 0;
  for (std::size_t i = 0; i < list.size(); i += 2) numbers += float_value(list[i]).has_value();
  if (list.size() % 2 == 1) {
    if (list.size() > 1 && numbers > 0)
      throw UserError({source, std::to_string(list.size()) + " words, some of them numbers",
                       "give a weight before every prefix, or no weights"});
    return {list, std::nullopt};
  }
  if (numbers == 0) return {list, std::nullopt};
  if (numbers != list.size() / 2)
    throw UserError({source, "some datasets have a weight and some have none",
                     "give a weight before every prefix, or no weights"});
  Blend blend{{}, std::vector<double>{}};
  for (std::size_t i = 0; i < list.size(); i += 2) {
    const double weight = *float_value(list[i]);
    if (!(weight > 0) || !std::isfinite(weight))
      throw UserError({source + ": the weight of " + list[i + 1] + " must be above zero", list[i],
                       "leave the dataset out, or give it a weight"});
    blend.weights->push_back(weight);
    blend.prefixes.push_back(list[i + 1]);
  }
  return blend;
}

DataSources data_sources(const DataConfig& config) {
  const bool per_split_flags = !config.train_data_path.empty() || !config.valid_data_path.empty() ||
                               !config.test_data_path.empty();
  const int ways = config.mock_data + !config.data_path.empty() + !config.data_args_path.empty() +
                   per_split_flags + !config.per_split_data_args_path.empty();
  constexpr const char* kWays =
      "--data-path, --data-args-path, --train-data-path/--valid-data-path/--test-data-path, "
      "--per-split-data-args-path, --mock-data";
  if (ways == 0 && config.task != FinetuneTask::none)
    throw UserError({"--task", "has no labelled texts to train on",
                     "add --train-data FILE, and --valid-data FILE to measure the accuracy"});
  if (ways == 0) throw UserError({"no data was given", "", std::string("give one of ") + kWays});
  if (ways > 1)
    throw UserError({"data was given in " + std::to_string(ways) + " ways", "",
                     std::string("give only one of ") + kWays});

  DataSources sources;
  if (!config.data_path.empty()) sources.blend = parse_blend(config.data_path, "--data-path");
  if (!config.data_args_path.empty())
    sources.blend =
        parse_blend(split_words(read_file(config.data_args_path)), config.data_args_path);
  if (!config.per_split_data_args_path.empty())
    sources.blend_per_split = read_per_split_file(config.per_split_data_args_path);
  if (per_split_flags) {
    auto& blends = sources.blend_per_split.emplace();
    if (!config.train_data_path.empty())
      blends[0] = parse_blend(config.train_data_path, "--train-data-path");
    if (!config.valid_data_path.empty())
      blends[1] = parse_blend(config.valid_data_path, "--valid-data-path");
    if (!config.test_data_path.empty())
      blends[2] = parse_blend(config.test_data_path, "--test-data-path");
  }
  if (sources.blend_per_split && !config.split.empty())
    throw UserError({"--split " + config.split + " cannot be used with one dataset per split", "",
                     "leave out --split"});
  return sources;
}

}  // namespace megatron
