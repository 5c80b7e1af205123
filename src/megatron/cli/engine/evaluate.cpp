// Implements `megatron evaluate`: measures a model on tasks by log-likelihood.
#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/base/progress_bar.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/cli/engine/inference_rank.h"
#include "megatron/config/run_command.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/evaluation/evaluation_task.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/load_tokenizer.h"

namespace megatron {
namespace {

EvaluationTask read_task(const EvaluateOptions& options, const std::string& name,
                         const std::string& content, const TransformerConfig& model,
                         const TaskReader& reader) {
  if (name == "LAMBADA") return reader.lambada(options.valid_data, content, options.strict_lambada);
  if (name != "WIKITEXT103") return reader.lines(name, content);
  const std::int64_t length = options.seq_length.value_or(model.max_position_embeddings);
  if (length < 1)
    throw UserError({"--seq-length", "the model does not say its context length", "give it"});
  const std::int64_t stride = options.overlapping_eval.value_or(std::min<std::int64_t>(32, length));
  if (stride > length)
    throw UserError({"--overlapping-eval", std::to_string(stride),
                     "give at most --seq-length, " + std::to_string(length)});
  return reader.wikitext(options.valid_data, content, length, stride);
}

/// Returns the scores of all texts, on rank 0. Each replica computes a part of them.
std::vector<TextScore> scores_of(InferenceRank& rank, const EngineOptions& engine,
                                 const EvaluationTask& task) {
  const auto stride = static_cast<std::size_t>(rank.num_replicas()),
             first = static_cast<std::size_t>(rank.replica());
  std::vector<ScoredText> own;
  for (std::size_t i = first; i < task.texts.size(); i += stride) {
    own.push_back(task.texts[i]);
    const auto& [ids, num_targets, source, encoded] = own.back();
    rank.note_length(std::max(std::ssize(ids) - 1, std::ssize(encoded)), source);
  }
  ProgressBar progress({.title = task.name,
                        .total = own.size(),
                        .unit = "texts",
                        .enabled = rank.is_main_rank() ? std::nullopt : std::optional(false)});
  const auto results = score_texts(
      rank.model(), own, {.engine = engine, .num_best = 1, .on_progress = [&](std::size_t done) {
                            progress.update(done);
                          }});
  std::vector<double> numbers(2 * task.texts.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    double sum = 0;
    for (const SampledToken& token : results[i]) sum += token.logprob;
    const std::size_t place = first + i * stride;
    numbers[2 * place] = sum;
    numbers[2 * place + 1] = std::ranges::all_of(
        results[i], [](const SampledToken& token) { return token.best.front().id == token.id; });
  }
  numbers = rank.sum(std::move(numbers));
  std::vector<TextScore> scores;
  for (std::size_t i = 0; i < numbers.size(); i += 2)
    scores.push_back({numbers[i], numbers[i + 1] > 0});
  return scores;
}

void print_json(const EvaluationTask& task, const std::vector<Metric>& metrics) {
  JsonText object = {{"task", task.name}, {"num_examples", task.num_examples}};
  for (const auto& [name, value, standard_error] : metrics) {
    object[name] = value;
    if (standard_error) object[name + "_stderr"] = *standard_error;
  }
  std::cout << object.dump() << '\n';
}

void print_rows(const EvaluationTask& task, const std::vector<Metric>& metrics, int width) {
  std::string name = task.name, count = std::to_string(task.num_examples);
  for (const Metric& metric : metrics) {
    std::cout << format("%-*s  %8s  %-12s  %10.4f", width, name.c_str(), count.c_str(),
                        metric.name.c_str(), metric.value);
    if (metric.standard_error) std::cout << format("  %8.4f", *metric.standard_error);
    std::cout << '\n';
    name = count = "";
  }
}

int evaluate_as(World& world, std::span<const std::string> args, const ModelFamilies& families) {
  const LaunchEnvironment& environment = world.environment();
  const EvaluateOptions options = read_evaluate_options(args, environment.world_size);
  std::vector<std::string> read_here;
  if (environment.rank == 0) {
    for (const std::string& task : options.task)
      read_here.push_back(read_file(EvaluateOptions::is_zero_shot(task) ? options.valid_data : task,
                                    kMaxInputBytes));
  }
  InferenceRank rank(world, options, flags_of(evaluate_table().set(), &options), families);
  const std::vector<std::string> contents = rank.broadcast(read_here);
  const LoadedTokenizer tokenizer = rank.load_tokenizer(options.tokenizer, options.parsed);
  const EngineOptions engine = rank.engine_options(options);
  const TransformerConfig& model = rank.model().config();
  const TaskReader reader(tokenizer, max_sequence_length(model));
  std::vector<EvaluationTask> tasks;
  std::size_t width = 4;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    tasks.push_back(read_task(options, options.task[i], contents[i], model, reader));
    width = std::max(width, options.task[i].size());
  }
  if (!options.json && rank.is_main_rank())
    std::cout << format("%-*s  %8s  %-12s  %10s  %8s\n", static_cast<int>(width), "task",
                        "examples", "metric", "value", "stderr");
  for (const EvaluationTask& task : tasks) {
    const std::vector<TextScore> scores = scores_of(rank, engine, task);
    if (!rank.is_main_rank()) continue;
    if (task.num_cut > 0)
      std::cerr << "note: " << task.name << ": the model has no positions for the beginnings of "
                << task.num_cut << " texts, which were left out\n";
    if (options.json)
      print_json(task, task.metrics(scores));
    else
      print_rows(task, task.metrics(scores), static_cast<int>(width));
    flush_stdout();
  }
  return 0;
}

}  // namespace

int run_evaluate(std::span<const std::string> args, const ModelFamilies& families) {
  return run_rank("evaluate", [&](World& world) { return evaluate_as(world, args, families); });
}

}  // namespace megatron
