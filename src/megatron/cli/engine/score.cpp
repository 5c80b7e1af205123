// `megatron score`: token ids in, their log-probabilities out, one JSON object per line.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/config/inference_options.h"
#include "megatron/inference/load_model.h"
#include "megatron/inference/scorer.h"
#include "megatron/training/open_device.h"

namespace megatron {
namespace {

std::vector<std::int64_t> read_ids(const std::string& line, const std::string& source) {
  const Json object = parse_json(line, source);
  const Json& ids = json_at(object, "ids", source);
  if (!ids.is_array()) throw UserError({source + ": ids", ids.dump(), "give a list of token ids"});
  std::vector<std::int64_t> result;
  for (const Json& id : ids) {
    if (!id.is_number_integer()) throw UserError({source + ": ids[" + std::to_string(result.size()) + "]", id.dump(), "token ids are integers"});
    result.push_back(id.get<std::int64_t>());
  }
  return result;
}

}  // namespace

int run_score(std::span<const std::string> args) {
  const ScoreOptions options = read_score_options(args);
  const LoadedModel loaded =
      load_model(options.load, options.ckpt_step, {.device = open_device(options.device).device, .type = requested_type(options)});
  for (const std::string& note : loaded.source.notes) std::cerr << note << "\n";
  std::string line;
  for (std::int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string source = "standard input, line " + std::to_string(number);
    const Score score = score_tokens(*loaded.model, read_ids(line, source), source);
    std::cout << OrderedJson({{"logprobs", score.logprobs}, {"loss", score.loss}}).dump() << std::endl;
  }
  return 0;
}

}  // namespace megatron
