// Implements `megatron generate`: continues prompts with a trained model and prints text or JSON
// lines.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/json_text.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/cli/engine/inference_rank.h"
#include "megatron/config/inference_options.h"
#include "megatron/config/run_command.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/generator.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/inference/sampling/stop_strings.h"
#include "megatron/parallel/rank.h"

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

/// Generates for batches of prompts, as one of several ranks, and prints the results.
class TextWriter {
 public:
  TextWriter(const GenerateOptions& options, InferenceRank& rank)
      : is_json_(options.json),
        answers_(rank.model().model().has_encoder()),
        rank_(rank),
        stored_(rank.load_tokenizer(options.tokenizer, options.parsed)),
        params_(options.sampling) {
    if (answers_ && options.parsed.is_set("prompt_logprobs"))
      throw UserError({options.parsed.origin("prompt_logprobs").where,
                       "an encoder's text has no log-probabilities", "leave it out"});
    params_.add_end_tokens(stored_.stop_token_ids);
    EngineOptions engine = rank.engine_options(options, options.speculative);
    engine.tokenizer = stored_.tokenizer.get();
    engine.decoder_start = stored_.decoder_start;
    generator_.emplace(rank.model(), params_, engine);
  }

  /// Takes all prompts, which must outlive the writer. UserError if one can never be continued.
  void take(std::span<const std::string> prompts) {
    texts_ = prompts;
    for (const std::string& prompt : prompts) {
      ids_.push_back(prompt_ids(*stored_.tokenizer, prompt, "--prompt"));
      stored_.end_encoded(ids_.back());
    }
    generator_->check(prompts_of(0, ids_.size()));
  }

  /// Continues `count` of the prompts from number `first` on, all in the same passes. Collective
  /// over the ranks of a replica.
  void write(std::size_t first, std::size_t count, std::ostream& out) {
    const std::vector<Prompt> batch = prompts_of(first, count);
    if (is_json_)
      write_json(texts_.subspan(first, count), batch, out);
    else
      write_text(texts_.subspan(first, count), batch, out);
  }

 private:
  std::vector<Prompt> prompts_of(std::size_t first, std::size_t count) const {
    std::vector<Prompt> prompts;
    for (std::size_t i = first; i < first + count; ++i) prompts.push_back({ids_[i], i});
    return prompts;
  }

  void write_json(std::span<const std::string> prompts, const std::vector<Prompt>& batch,
                  std::ostream& out) {
    const std::vector<std::vector<Generation>> generations = generator_->generate_all(batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      JsonText object = {{"prompt", prompts[i]},
                         {"prompt_ids", std::vector(batch[i].ids.begin(), batch[i].ids.end())}};
      if (params_.prompt_logprobs && !generations[i].empty() && !answers_)
        object["prompt_logprobs"] = prompt_logprobs(generations[i].front());
      JsonText choices = JsonText::array();
      for (const Generation& generation : generations[i]) choices.push_back(choice(generation));
      if (!generations[i].empty()) object.update(choice(generations[i].front()));
      if (params_.n > 1) object["choices"] = std::move(choices);
      out << object.dump() << std::endl;
      for (const Generation& generation : generations[i]) note_length(batch[i], generation);
    }
  }

  /// Returns what the JSON output says of one text.
  JsonText choice(const Generation& generation) const {
    JsonText object = {{"text", decode(generation)},
                       {"ids", generation.ids},
                       {"finish_reason", finish_reason_name(generation.finish_reason)}};
    if (params_.reports_logprobs()) {
      JsonText logprobs = JsonText::array(), all_best = JsonText::array();
      for (const SampledToken& token : generation.tokens) {
        logprobs.push_back(token.logprob);
        JsonText best = JsonText::array();
        for (const TokenLogprob& one : token.best)
          best.push_back({{"id", one.id}, {"logprob", one.logprob}});
        all_best.push_back(std::move(best));
      }
      object["logprobs"] = std::move(logprobs);
      if (params_.logprobs > 0) object["top_logprobs"] = std::move(all_best);
    }
    if (params_.num_beams > 1 || params_.num_samples() > params_.n)
      object["score"] = generation.score;
    return object;
  }

  static JsonText prompt_logprobs(const Generation& generation) {
    JsonText logprobs = JsonText::array({nullptr});
    for (const SampledToken& token : generation.prompt_tokens) logprobs.push_back(token.logprob);
    return logprobs;
  }

  /// Prints the prompts with their continuations, or their answers on lines of their own: the first
  /// one while it is generated, unless there are several texts of a prompt, the others when all are
  /// there.
  void write_text(std::span<const std::string> prompts, const std::vector<Prompt>& batch,
                  std::ostream& out) {
    const bool is_live = params_.num_samples() == 1 && params_.num_beams == 1;
    GeneratedText live(*stored_.tokenizer, context_of(batch.front()), params_);
    std::int64_t num_live = 0;
    const auto begin = [&](std::size_t i, bool is_first) {
      out << (batch[i].index == 0 && is_first ? "" : "\n") << prompts[i] << (answers_ ? "\n" : "")
          << std::flush;
    };
    if (is_live) begin(0, true);
    const auto on_token = [&](std::size_t i, std::int64_t id) {
      if (is_live && i == 0)
        out << live.add(id, num_live++ >= params_.min_new_tokens) << std::flush;
    };
    const std::vector<std::vector<Generation>> generations =
        generator_->generate_all(batch, on_token);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      for (const Generation& generation : generations[i]) {
        if (is_live && i == 0) {
          out << live.finish() << std::endl;
        } else {
          begin(i, &generation == &generations[i].front());
          out << continuation(batch[i], generation) << std::endl;
        }
        if (rank_.is_replica_leader() && generation.finish_reason == FinishReason::max_positions)
          std::cerr << "(the model has no position for another token)\n";
        note_length(batch[i], generation);
      }
    }
  }

  /// Returns the ids before the text.
  std::span<const std::int64_t> context_of(const Prompt& prompt) const {
    return answers_ ? std::span<const std::int64_t>() : prompt.ids;
  }

  /// Returns the text that follows the prompt's.
  std::string continuation(const Prompt& prompt, const Generation& generation) const {
    GeneratedText stream(*stored_.tokenizer, context_of(prompt), params_);
    std::string text;
    for (std::int64_t i = 0; i < std::ssize(generation.ids); ++i)
      text += stream.add(generation.ids[static_cast<std::size_t>(i)], i >= params_.min_new_tokens);
    return text + stream.finish();
  }

  void note_length(const Prompt& prompt, const Generation& generation) {
    const std::int64_t before = std::ssize(prompt.ids), after = std::ssize(generation.ids);
    const std::string name = "prompt " + std::to_string(prompt.index + 1);
    rank_.note_length(answers_ ? std::max(before, after) : before + after,
                      name + (answers_ ? " or its answer" : " with its continuation"));
  }

  std::string decode(const Generation& generation) const {
    std::string text = stored_.tokenizer->decode(
        std::vector<std::int32_t>(generation.ids.begin(), generation.ids.end()));
    text.resize(text.size() - std::min(text.size(), generation.num_cut_bytes));
    return text;
  }

  const bool is_json_, answers_;  ///< a decoder answers what an encoder reads
  InferenceRank& rank_;
  const LoadedTokenizer stored_;
  SamplingParams params_;
  std::optional<Generator> generator_;
  std::span<const std::string> texts_;
  std::vector<std::vector<std::int64_t>> ids_;  ///< of texts_
};

/// Returns how many prompts a replica continues in the same passes.
std::size_t batch_size(std::size_t num_prompts, std::size_t replicas, std::int64_t num_samples) {
  const std::size_t most = std::max<std::size_t>(1, 16 / static_cast<std::size_t>(num_samples));
  return std::clamp<std::size_t>((num_prompts + replicas - 1) / replicas, 1, most);
}

int generate_as(World& world, std::span<const std::string> args, const ModelFamilies& families) {
  const LaunchEnvironment& environment = world.environment();
  const GenerateOptions options = read_generate_options(args, environment.world_size);
  const std::vector<std::string> read_here =
      environment.rank == 0 ? all_prompts(options) : std::vector<std::string>{};
  InferenceRank rank(world, options, flags_of(generate_table().set(), &options), families);
  const std::vector<std::string> prompts = rank.broadcast(read_here);
  TextWriter writer(options, rank);
  writer.take(prompts);
  std::ostream silence(nullptr);
  std::ostream& out = rank.is_main_rank() ? std::cout : silence;
  const auto replicas = static_cast<std::size_t>(rank.num_replicas()),
             size = batch_size(prompts.size(), replicas, options.sampling.num_samples());
  for (std::size_t first = 0; first < prompts.size(); first += replicas * size) {
    const std::size_t mine =
        std::min(prompts.size(), first + static_cast<std::size_t>(rank.replica()) * size);
    const std::size_t count = std::min(size, prompts.size() - mine);
    if (replicas == 1) {
      writer.write(mine, count, out);
    } else {
      std::ostringstream text;
      if (count > 0) writer.write(mine, count, text);
      for (const std::string& one : rank.gather(text.str())) out << one;
    }
    if (rank.is_main_rank()) flush_stdout();
  }
  if (options.sampling.num_beams == 1) rank.note_speculation();
  return 0;
}

}  // namespace

int run_generate(std::span<const std::string> args, const ModelFamilies& families) {
  return run_rank("generate", [&](World& world) { return generate_as(world, args, families); });
}

}  // namespace megatron
