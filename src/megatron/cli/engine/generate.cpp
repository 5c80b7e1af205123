// Implements `megatron generate`: continues prompts with a trained model and prints text or JSON
// lines.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/json_text.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/cli/engine/inference_rank.h"
#include "megatron/config/inference_options.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/generator.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/parallel/rank.h"
#include "megatron/tokenizers/decode_stream.h"

namespace megatron {
namespace {

std::vector<std::string> all_prompts(const GenerateOptions& options) {
  std::vector<std::string> prompts = options.prompt;
  if (!options.prompt_file.empty()) {
    std::vector<std::string> more = read_prompts(options.prompt_file, std::cerr);
    const auto most =
        static_cast<std::size_t>(options.prompt_file_num_truncate.value_or(std::ssize(more)));
    more.resize(std::min(more.size(), most));
    prompts.insert(prompts.end(), more.begin(), more.end());
  }
  return prompts;
}

/// Returns the ids of a prompt. An empty prompt is the token that begins a document.
std::vector<std::int64_t> prompt_ids(const Tokenizer& tokenizer, const std::string& prompt) {
  const std::vector<std::int32_t> ids = tokenizer.encode(prompt);
  if (!ids.empty()) return {ids.begin(), ids.end()};
  const std::int32_t begin = tokenizer.bos() >= 0 ? tokenizer.bos() : tokenizer.eod();
  if (begin < 0)
    throw UserError({"--prompt", "is empty, and the tokenizer has no token that begins a document",
                     "give some text"});
  return {begin};
}

/// Generates for one prompt after the other, as one of several ranks, and prints the result.
class TextWriter {
 public:
  TextWriter(const GenerateOptions& options, InferenceRank& rank)
      : is_json_(options.json),
        rank_(rank),
        stored_(load_tokenizer(tokenizer_flags(options.tokenizer, options.parsed),
                               rank.loaded().source)),
        generator_(rank.model(),
                   {.sampling = {.temperature = options.temperature,
                                 .top_k = options.top_k,
                                 .top_p = options.top_p,
                                 .seed = static_cast<std::uint64_t>(options.seed)},
                    .max_new_tokens = options.max_new_tokens,
                    .stop_token_ids = options.termination_id
                                          ? std::vector<std::int64_t>{*options.termination_id}
                                          : stored_.stop_token_ids}) {
    for (const std::string& note : stored_.notes)
      if (rank.is_main_rank()) std::cerr << "note: " << note << "\n";
  }

  /// Collective over the ranks of a replica.
  void write(const std::string& prompt, std::uint64_t index, std::ostream& out) {
    const std::vector<std::int64_t> ids = prompt_ids(*stored_.tokenizer, prompt);
    Generation generation;
    if (is_json_) {
      generation = generator_.generate(ids, index);
      write_json(prompt, ids, generation, out);
    } else {
      if (index > 0) out << "\n";
      generation = stream_text(prompt, ids, index, out);
    }
    rank_.note_length(std::ssize(ids) + std::ssize(generation.ids),
                      "prompt " + std::to_string(index + 1) + " with its continuation");
  }

 private:
  void write_json(const std::string& prompt, const std::vector<std::int64_t>& ids,
                  const Generation& generation, std::ostream& out) const {
    const JsonText object = {{"prompt", prompt},
                             {"prompt_ids", ids},
                             {"text", decode(generation.ids)},
                             {"ids", generation.ids},
                             {"finish_reason", finish_reason_name(generation.finish_reason)}};
    out << object.dump() << std::endl;
  }

  /// Prints the prompt, and the continuation while it is generated.
  Generation stream_text(const std::string& prompt, const std::vector<std::int64_t>& ids,
                         std::uint64_t index, std::ostream& out) {
    DecodeStream stream(*stored_.tokenizer, std::vector<std::int32_t>(ids.begin(), ids.end()));
    out << prompt << std::flush;
    const Generation generation = generator_.generate(ids, index, [&](std::int64_t id) {
      out << stream.add(static_cast<std::int32_t>(id)) << std::flush;
    });
    out << stream.finish() << std::endl;
    if (rank_.is_replica_leader() && generation.finish_reason == FinishReason::max_positions)
      std::cerr << "(the model has no position for another token)\n";
    return generation;
  }

  std::string decode(std::span<const std::int64_t> ids) const {
    return stored_.tokenizer->decode(std::vector<std::int32_t>(ids.begin(), ids.end()));
  }

  const bool is_json_;
  InferenceRank& rank_;
  const LoadedTokenizer stored_;
  Generator generator_;
};

int generate_as(World& world, std::span<const std::string> args, const ModelFamilies& families) {
  const LaunchEnvironment& environment = world.environment();
  const GenerateOptions options = read_generate_options(args, environment.world_size);
  const std::vector<std::string> read_here =
      environment.rank == 0 ? all_prompts(options) : std::vector<std::string>{};
  InferenceRank rank(world, options, flags_of(generate_table().set(), &options), families);
  const std::vector<std::string> prompts = rank.broadcast(read_here);
  TextWriter writer(options, rank);
  std::ostream silence(nullptr);
  if (rank.num_replicas() == 1) {
    for (std::size_t i = 0; i < prompts.size(); ++i)
      writer.write(prompts[i], i, rank.is_main_rank() ? std::cout : silence);
    return 0;
  }
  for (std::size_t first = 0; first < prompts.size();
       first += static_cast<std::size_t>(rank.num_replicas())) {
    const std::size_t mine = first + static_cast<std::size_t>(rank.replica());
    std::ostringstream text;
    if (mine < prompts.size()) writer.write(prompts[mine], mine, text);
    for (const std::string& one : rank.gather(text.str()))
      (rank.is_main_rank() ? std::cout : silence) << one << std::flush;
  }
  return 0;
}

}  // namespace

int run_generate(std::span<const std::string> args, const ModelFamilies& families) {
  return run_rank("generate", [&](World& world) { return generate_as(world, args, families); });
}

}  // namespace megatron
