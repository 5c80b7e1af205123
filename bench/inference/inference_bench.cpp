// Times the inference engine (inference/engine.h) on a folder of a model.
//   inference_bench DIR first|token|whole|hit|verify STEPS PROMPT NEW REQUESTS [CACHE]
//   inference_bench schedule STEPS PROMPT NEW REQUESTS
// REQUESTS prompts of PROMPT tokens are continued greedily by NEW tokens, all together. A step is
//   first  a pass over the prompts, to their first tokens
//   token  the next token of each
//   whole  everything
//   hit    a first token of prompts whose blocks are in the prefix cache
//   verify a pass over a token of one request and four drafts, which its text proposes itself
// CACHE is a value of --kv-cache-dtype. Prints one JSON line for each step, {"ms": …, "loss": …},
// where the loss is −log p of the first token of the first prompt. `schedule` needs no model: it
// plans STEPS passes for requests of random lengths, uniform with the means PROMPT and NEW, of
// which there are always REQUESTS, and prints one line with the median time of a plan and the part
// of the cache that is wasted.
#include <ATen/Parallel.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/cpu_affinity.h"
#include "megatron/base/division.h"
#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/engine.h"
#include "megatron/inference/engine_options.h"
#include "megatron/inference/load_model.h"
#include "megatron/training/observability/tensor_memory.h"
#include "program.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;

struct Workload {
  std::int64_t prompt = 0, new_tokens = 0, requests = 0;
};

/// Returns the prompt of a request, which turn.py gives the other contenders too.
Ids prompt_of(std::int64_t request, std::int64_t length, std::int64_t vocab_size) {
  Ids ids;
  for (std::int64_t i = 0; i < length; ++i)
    ids.push_back((1 + 7919 * i + 104'729 * request) % vocab_size);
  return ids;
}

/// Returns options with blocks for the longest requests that run together.
SchedulerOptions scheduler_options(std::int64_t max_length, std::int64_t requests,
                                   bool prefix_cache) {
  SchedulerOptions options{.prefix_cache = prefix_cache};
  options.num_blocks = requests * (2 + ceil_div(max_length, kBlockPositions));
  return options;
}

/// Serves the same requests again and again.
class EngineBench {
 public:
  EngineBench(const ModelRunner& model, const Workload& workload, bool prefix_cache,
              KvCacheType cache, std::int64_t num_drafts)
      : engine_(model, {.scheduler = scheduler_options(workload.prompt + workload.new_tokens,
                                                       workload.requests, prefix_cache),
                        .speculation = {.config = {.num_speculative_tokens = num_drafts,
                                                   .speculative_method = SpeculativeMethod::ngram,
                                                   .ngram_prompt_lookup_min = 1},
                                        .stats = &stats_},
                        .kv_cache_type = cache}),
        num_drafts_(num_drafts),
        workload_(workload) {
    for (std::int64_t request = 0; request < workload.requests; ++request)
      prompts_.push_back(prompt_of(request, workload.prompt, model.config().vocab_size));
  }

  /// Returns −log p of the first token of the first prompt.
  double loss() {
    engine_.add_request(
        {.prompt = prompts_.front(),
         .params = {.temperature = 0, .max_new_tokens = 1, .return_log_probs = true}});
    double loss = 0;
    while (!engine_.is_idle())
      for (const Update& update : engine_.step())
        if (update.finished) loss = -update.finished->tokens.front().logprob;
    return loss;
  }

  void add_requests(std::int64_t max_new_tokens) {
    for (const Ids& prompt : prompts_)
      engine_.add_request(
          {.prompt = prompt, .params = {.temperature = 0, .max_new_tokens = max_new_tokens}});
  }

  /// Serves all requests to their end and returns the time.
  double whole_ms(std::int64_t max_new_tokens) {
    const double begin = bench::now_ms();
    add_requests(max_new_tokens);
    while (!engine_.is_idle()) engine_.step();
    return bench::now_ms() - begin;
  }

  /// Steps until every request has its first token, so that the next passes only decode.
  void prefill() {
    std::map<SequenceId, std::int64_t> num_tokens;
    while (std::ssize(num_tokens) < workload_.requests)
      for (const Update& update : engine_.step()) ++num_tokens[update.request];
  }

  /// Returns the time of a pass that gives each request a token.
  double token_ms() {
    const double begin = bench::now_ms();
    const std::vector<Update> updates = engine_.step();
    const double time = bench::now_ms() - begin;
    MEGATRON_CHECK(std::ssize(updates) == workload_.requests, "a pass gave ", updates.size(),
                   " tokens to ", workload_.requests, " requests");
    return time;
  }

  /// Steps until a pass verifies the most drafts, and returns its time.
  double verify_ms() {
    while (!engine_.is_idle()) {
      const std::int64_t before = stats_.num_drafts;
      const double begin = bench::now_ms();
      engine_.step();
      if (stats_.num_drafts == before + num_drafts_) return bench::now_ms() - begin;
    }
    throw std::runtime_error("the text repeats nothing that could be proposed");
  }

 private:
  SpeculationStats stats_;
  Engine engine_;
  std::int64_t num_drafts_ = 0;
  Workload workload_;
  std::vector<Ids> prompts_;
};

void time_engine(const std::string& folder, const std::string& kind, int steps, Workload workload,
                 const std::string& cache) {
  at::set_num_threads(intra_op_threads({}));
  const LoadedModel loaded = load_model(folder, {}, {.packs_weights = true});
  const bool verifies = kind == "verify";
  const bool decodes = kind == "token" || verifies;
  const std::int64_t num_drafts = verifies ? 4 : 0;
  // The prompts of others take passes in which a request already gets tokens, and not every step
  // has drafts.
  if (decodes)
    workload.new_tokens =
        (1 + 3 * num_drafts) * steps + workload.requests * (2 + workload.prompt / 64);
  EngineBench bench(loaded.runner, workload, /*prefix_cache=*/kind == "hit",
                    kv_cache_type({.kv_cache_dtype = cache}), num_drafts);
  const double loss = bench.loss();
  if (kind == "hit") bench.whole_ms(1);
  if (decodes) {
    bench.add_requests(workload.new_tokens);
    bench.prefill();
  }
  for (int i = 0; i < steps; ++i) {
    const double ms = verifies          ? bench.verify_ms()
                      : decodes         ? bench.token_ms()
                      : kind == "whole" ? bench.whole_ms(workload.new_tokens)
                                        : bench.whole_ms(1);
    std::printf("{\"ms\": %.4f, \"loss\": %.9g}\n", ms, loss);
    std::fflush(stdout);
  }
}

/// Plans passes as an engine does, without a model.
void time_scheduling(int steps, const Workload& workload) {
  Scheduler scheduler(scheduler_options(2 * (workload.prompt + workload.new_tokens),
                                        workload.requests, /*prefix_cache=*/false));
  std::mt19937 random(1);
  const auto draw_length = [&](std::int64_t mean) {
    return std::uniform_int_distribution<std::int64_t>(1, 2 * mean - 1)(random);
  };
  std::map<SequenceId, std::int64_t> num_computed;
  std::vector<double> times;
  std::int64_t num_used = 0, num_reserved = 0;
  for (int i = 0; i < steps; ++i) {
    while (std::ssize(num_computed) < workload.requests)
      num_computed.emplace(
          scheduler.add({.prompt = Ids(static_cast<std::size_t>(draw_length(workload.prompt))),
                         .max_new_tokens = draw_length(workload.new_tokens)}),
          0);
    double begin = bench::now_ms();
    const StepPlan plan = scheduler.plan(0);
    double time = bench::now_ms() - begin;
    std::vector<Ids> tokens;
    for (const SequenceId sequence : plan.preempted) num_computed.at(sequence) = 0;
    for (const ScheduledRun& run : plan.runs) {
      num_computed.at(run.sequence) = run.first + run.count;
      tokens.push_back(run.samples ? Ids{0} : Ids{});
    }
    for (const auto& [sequence, count] : num_computed) num_used += count;
    const BlockPool& pool = scheduler.pool();
    num_reserved += kBlockPositions * (pool.num_blocks() - pool.num_available());
    begin = bench::now_ms();
    const std::vector<SequenceId> ended = scheduler.advance(plan, tokens);
    time += bench::now_ms() - begin;
    for (const SequenceId sequence : ended) num_computed.erase(sequence);
    times.push_back(time);
  }
  std::printf("{\"plan_ms\": %.5f, \"waste\": %.5f}\n", bench::median(times),
              1 - static_cast<double>(num_used) / static_cast<double>(num_reserved));
}

void run(const std::vector<std::string>& words) {
  keep_freed_memory();
  const bool schedules = words.size() == 5 && words[0] == "schedule";
  const std::string kind = words.size() == 6 || words.size() == 7 ? words[1] : "";
  if (!schedules && !std::set<std::string>{"first", "token", "whole", "hit", "verify"}.count(kind))
    throw std::invalid_argument(
        "usage: inference_bench DIR first|token|whole|hit|verify STEPS PROMPT NEW REQUESTS "
        "[CACHE], or schedule STEPS PROMPT NEW REQUESTS");
  const std::size_t first = schedules ? 1 : 2;
  const int steps = bench::parse_count("STEPS", words[first]);
  const Workload workload{.prompt = bench::parse_count("PROMPT", words[first + 1]),
                          .new_tokens = bench::parse_count("NEW", words[first + 2]),
                          .requests = bench::parse_count("REQUESTS", words[first + 3])};
  if (schedules) return time_scheduling(steps, workload);
  time_engine(words[0], kind, steps, workload, words.size() == 7 ? words[6] : "auto");
}

}  // namespace
}  // namespace megatron

int main(int count, char** words) { return megatron::bench::run_main(count, words, megatron::run); }
