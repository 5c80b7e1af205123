// Names of data. The input holds words separated by NUL bytes: the first is the content of a file
// of --per-split-data-args-path, all are a list of weights and prefixes.
#include <vector>

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/base/error.h"
#include "megatron/config/data_config.h"
#include "megatron/datasets/blend.h"

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
