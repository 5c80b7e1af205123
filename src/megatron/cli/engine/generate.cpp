// Implements `megatron generate`: continues prompts with a trained model and prints text or JSON
// lines.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "megatron/base/division.h"
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

/// Generates for batches of prompts, as one of several ranks, and prints the results.
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

  /// Continues prompts, of which the first has this number, all in the same passes. Collective over
  /// the ranks of a replica.
  void write(std::span<const std::string> prompts, std::uint64_t first, std::ostream& out) {
    std::vector<std::vector<std::int64_t>> ids;
    for (const std::string& prompt : prompts) ids.push_back(prompt_ids(*stored_.tokenizer, prompt));
    std::vector<Prompt> batch;
    for (std::size_t i = 0; i < ids.size(); ++i) batch.push_back({ids[i], first + i});
    if (is_json_)
      write_json(prompts, batch, out);
    else
      write_text(prompts, batch, out);
  }

 private:
  void write_json(std::span<const std::string> prompts, const std::vector<Prompt>& batch,
                  std::ostream& out) {
    const std::vector<Generation> generations = generator_.generate(batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const JsonText object = {
          {"prompt", prompts[i]},
          {"prompt_ids", std::vector(batch[i].ids.begin(), batch[i].ids.end())},
          {"text", decode(generations[i].ids)},
          {"ids", generations[i].ids},
          {"finish_reason", finish_reason_name(generations[i].finish_reason)}};
      out << object.dump() << std::endl;
      note_length(batch[i], generations[i]);
    }
  }

  /// Prints the prompts with their continuations: the first one while it is generated, the others
  /// when all are there.
  void write_text(std::span<const std::string> prompts, const std::vector<Prompt>& batch,
                  std::ostream& out) {
    std::vector<DecodeStream> streams;
    for (const Prompt& prompt : batch)
      streams.emplace_back(*stored_.tokenizer,
                           std::vector<std::int32_t>(prompt.ids.begin(), prompt.ids.end()));
    std::vector<std::string> texts(batch.size());
    const auto begin = [&](std::size_t i) {
      out << (batch[i].index > 0 ? "\n" : "") << prompts[i] << texts[i] << std::flush;
    };
    begin(0);
    const std::vector<Generation> generations =
        generator_.generate(batch, [&](std::size_t i, std::int64_t id) {
          const std::string text = streams[i].add(static_cast<std::int32_t>(id));
          if (i == 0)
            out << text << std::flush;
          else
            texts[i] += text;
        });
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (i > 0) begin(i);
      out << streams[i].finish() << std::endl;
      if (rank_.is_replica_leader() && generations[i].finish_reason == FinishReason::max_positions)
        std::cerr << "(the model has no position for another token)\n";
      note_length(batch[i], generations[i]);
    }
  }

  void note_length(const Prompt& prompt, const Generation& generation) {
    rank_.note_length(std::ssize(prompt.ids) + std::ssize(generation.ids),
                      "prompt " + std::to_string(prompt.index + 1) + " with its continuation");
  }

  std::string decode(std::span<const std::int64_t> ids) const {
    return stored_.tokenizer->decode(std::vector<std::int32_t>(ids.begin(), ids.end()));
  }

  const bool is_json_;
  InferenceRank& rank_;
  const LoadedTokenizer stored_;
  Generator generator_;
};

/// Returns how many prompts a replica continues in the same passes. The tokens of a pass share the
/// capacity of experts, so then each prompt has passes of its own.
std::size_t batch_size(const TransformerConfig& model, std::size_t num_prompts,
                       std::size_t replicas) {
  constexpr std::size_t kMost = 16;
  if (model.moe.num_experts > 0 && model.moe.expert_capacity_factor) return 1;
  return std::clamp<std::size_t>(ceil_div(num_prompts, replicas), 1, kMost);
}

int generate_as(World& world, std::span<const std::string> args, const ModelFamilies& families) {
  const LaunchEnvironment& environment = world.environment();
  const GenerateOptions options = read_generate_options(args, environment.world_size);
  const std::vector<std::string> read_here =
      environment.rank == 0 ? all_prompts(options) : std::vector<std::string>{};
  InferenceRank rank(world, options, flags_of(generate_table().set(), &options), families);
  const std::vector<std::string> prompts = rank.broadcast(read_here);
  TextWriter writer(options, rank);
  std::ostream silence(nullptr);
  std::ostream& out = rank.is_main_rank() ? std::cout : silence;
  const auto replicas = static_cast<std::size_t>(rank.num_replicas()),
             size = batch_size(rank.model().config(), prompts.size(), replicas);
  for (std::size_t first = 0; first < prompts.size(); first += replicas * size) {
    const std::size_t mine =
        std::min(prompts.size(), first + static_cast<std::size_t>(rank.replica()) * size);
    const std::span batch =
        std::span(prompts).subspan(mine).first(std::min(size, prompts.size() - mine));
    if (replicas == 1) {
      writer.write(batch, mine, out);
      continue;
    }
    std::ostringstream text;
    if (!batch.empty()) writer.write(batch, mine, text);
    for (const std::string& one : rank.gather(text.str())) out << one << std::flush;
  }
  return 0;
}

}  // namespace

int run_generate(std::span<const std::string> args, const ModelFamilies& families) {
  return run_rank("generate", [&](World& world) { return generate_as(world, args, families); });
}

}  // namespace megatron
