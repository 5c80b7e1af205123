// Names of data. The input holds words separated by NUL bytes: the first is a pattern of shards and
// the content of a file of --per-split-data-args-path, all are a list of weights and prefixes.
#include <algorithm>
#include <vector>

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/base/error.h"
#include "megatron/config/data_config.h"
#include "megatron/datasets/blend.h"
#include "megatron/datasets/webdataset/shard_names.h"

namespace megatron::fuzz {

void parse_data_names(std::string_view input) {
  std::vector<std::string> words;
  for (std::string_view rest = input; !rest.empty();) words.emplace_back(take_part(rest));
  if (words.empty()) return;
  const auto each = [](const auto& read) {
    try {
      read();
    } catch (const UserError&) {
      // Expected: the next reader has other requirements.
    }
  };
  // Long lists of names are right, but slow.
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (words[0].size() < 40 && std::ranges::count_if(words[0], is_digit) < 6)
    each([&] { expand_shard_names(words[0]); });
  DataConfig config;
  config.per_split_data_args_path = write_input("splits.json", words[0]);
  each([&] { data_sources(config); });
  config.per_split_data_args_path.clear();
  config.data_args_path = write_input("paths", words[0]);
  each([&] { data_sources(config); });
  const Blend blend = parse_blend(words, "--data-path");
  require(!blend.weights || blend.weights->size() == blend.prefixes.size(),
          "weights and prefixes differ in number");
}

}  // namespace megatron::fuzz
