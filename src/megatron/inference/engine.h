// The inference engine: serves any number of requests together. Each step is one pass over tokens
// of many sequences, as the scheduler chooses them: decode steps beside parts of prompts. With our
// GEMM (ops/matmul.h) a text has the bits that it has alone, whatever shares its passes. There are
// two exceptions: experts with a capacity, which the tokens of a pass share, and cached latents
// (--cache-mla-latents), which only the first part of a prompt does not read.
//
//   Engine engine(model);
//   engine.add_request({.prompt = ids, .params = {.temperature = 0}});
//   while (!engine.is_idle())
//     for (const Update& update : engine.step()) ...
//
// Ranks of a model make the same calls in the same order, and get the same updates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/inference/sampling/sequence_sampler.h"
#include "megatron/inference/scheduler.h"
#include "megatron/inference/speculation/drafter.h"
#include "megatron/ops/sequence_cache.h"
#include "megatron/pipeline/model_runner.h"

namespace megatron {

class GeneratedText;
class Tokenizer;

enum class FinishReason {
  stop,           ///< a stop token was sampled, or the text has a stop string
  length,         ///< max_new_tokens tokens were sampled
  max_positions,  ///< the model's maximum sequence length is reached
  deadline        ///< its time was over
};
/// Returns "stop", "length", "max_positions" or "deadline".
std::string_view finish_reason_name(FinishReason reason);

struct Generation {
  std::vector<std::int64_t> ids;  ///< the new tokens, without a stop token
  FinishReason finish_reason = FinishReason::length;
  /// Bytes at the end of the text of `ids` that are no part of the result: a stop string and what
  /// its last token has behind it.
  std::size_t num_cut_bytes = 0;
  /// The tokens of `ids` with log-probabilities, if SamplingParams::needs_logprobs().
  std::vector<SampledToken> tokens = {};
  /// With log-probabilities their mean, the stop token included; of a beam its score.
  double score = 0;
};

/// Runs a pass over tokens of sequences, each with the cache of those before, and returns the
/// logits [rows, vocab_size] of the tokens that come next, in float32 on the CPU: a row of each
/// sequence, or as many as Pass::num_logits says. `rows` is Pass::rows. The caller turns gradients
/// off. Collective over the ranks of the model.
at::Tensor next_logits(const ModelRunner& model,
                       const std::vector<std::span<const std::int64_t>>& inputs,
                       const Caches& caches, std::vector<std::int64_t> num_logits = {},
                       at::Tensor* rows = nullptr);
/// Returns the row of a sequence in them.
std::span<const float> row_of(const at::Tensor& logits, std::size_t sequence);

/// Throws UserError that names the prompt when logits are not sound (check_logits()).
void check_next_logits(const ModelRunner& model, std::span<const float> logits,
                       std::uint64_t prompt_index, std::int64_t position);

/// Copies blocks as a plan says. `swap` has the blocks of preempted sequences.
void copy_blocks(std::span<const BlockCopy> copies, CacheMemory& memory, CacheMemory& swap);

struct TextRequest {
  std::vector<std::int64_t> prompt;  ///< at least one token
  SamplingParams params = {};        ///< of one text: `n` and beams are the caller's work
  SamplingSite site = {};            ///< selects the random numbers, and names the prompt in errors
  std::int64_t priority = 0;         ///< lower numbers are served first
  double deadline_s = std::numeric_limits<double>::infinity();  ///< on the engine's clock
};

/// News of a request: a token of its text, its end, or both.
struct Update {
  SequenceId request = 0;
  std::optional<std::int64_t> token = {};
  std::optional<Generation> finished = {};
};

struct EngineOptions {
  SchedulerOptions scheduler = {};
  /// Returns seconds; the same on all ranks. Null: it is always 0.
  std::function<double()> clock = {};
  const Tokenizer* tokenizer = nullptr;  ///< only stop strings need it
  SpeculationOptions speculation = {};
  KvCacheType kv_cache_type = KvCacheType::same;
};

class Engine {
 public:
  /// `model` must have its weights bound. It and the tokenizer must outlive the engine. UserError
  /// when an option is out of range.
  explicit Engine(const ModelRunner& model, const EngineOptions& options = {});
  ~Engine();

  /// Returns the name of the request in updates. UserError when the request cannot be served.
  SequenceId add_request(TextRequest request);
  /// Ends a request, which gets no more updates. Returns false if it has ended before.
  bool cancel(SequenceId request);
  /// Computes one pass and returns the news, in the order of the sequences in the pass. If the pass
  /// fails, all requests are as they were before. Collective over the ranks of the model.
  std::vector<Update> step();
  /// Makes the requests compute their caches again, because the weights have changed.
  void recompute_all();

  bool is_idle() const { return running_.empty() && news_.empty(); }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  struct Running;

  using Drafts = std::vector<std::vector<DraftToken>>;

  /// Gives a cache the blocks of the run's sequence, and the states of the tokens before the run.
  void place(SequenceCache& cache, const ScheduledRun& run);
  /// Keeps the states that sequences with the same beginning will need, and drops others.
  void keep_states();
  /// Returns the drafts of each run, and shortens the runs that get fewer than were planned.
  Drafts propose(StepPlan& plan);
  /// Returns the logits [rows, vocab_size] of the tokens that runs sample.
  at::Tensor logits_of(const StepPlan& plan, const Drafts& drafts);
  /// Returns the tokens that a pass drew for each run: none, one, or the accepted drafts and one.
  std::vector<std::vector<SampledToken>> draw(const StepPlan& plan, const Drafts& drafts);
  /// Forgets what a drafter knows of a sequence.
  void forget(SequenceId request);
  /// Adds a token to a text, or ends it.
  void append(SequenceId request, const SampledToken& token);
  /// Ends a text and tells its result.
  void finish(SequenceId request, FinishReason reason);

  ModelRunner model_;
  EngineOptions options_;
  Scheduler scheduler_;
  std::shared_ptr<CacheMemory> memory_;
  CacheMemory swap_memory_{{.device = at::kCPU}};  ///< blocks of preempted sequences
  std::map<BlockId, SequenceCache> snapshots_;     ///< states behind published blocks
  std::unique_ptr<Drafter> drafter_;               ///< null without speculation
  std::int64_t num_draft_steps_ = 0;               ///< steps that might have had drafts
  std::map<SequenceId, std::unique_ptr<Running>> running_;
  std::vector<Update> news_;  ///< that the next step returns
};

}  // namespace megatron
