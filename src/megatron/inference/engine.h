// The inference engine: serves any number of requests together. Each step is one pass over tokens
// of many sequences, as the scheduler chooses them: decode steps beside parts of prompts. With our
// GEMM (ops/matmul.h) a text has the bits that it has alone, whatever shares its passes,
// except with cached latents (--cache-mla-latents), which only the first part of a prompt does not
// read, and with recurrent layers, which divide a text where passes do. Where the tokens of a pass
// share the capacity of experts, each text has passes of its own.
//
//   Engine engine(model);
//   engine.add_request({.prompt = ids, .params = {.temperature = 0}});
//   while (!engine.is_idle())
//     for (const Update& update : engine.step()) ...
//
// The texts of a request that share passes fork when its prompt is computed; beams are held until
// the tokens of all are known, and fork then.
//
// Ranks of a model make the same calls in the same order, and get the same updates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "megatron/inference/scheduler.h"
#include "megatron/inference/speculation/drafter.h"
#include "megatron/inference/text_request.h"
#include "megatron/ops/sequence_cache.h"
#include "megatron/pipeline/model_runner.h"

namespace megatron {

class Tokenizer;
struct RunningText;
struct SequenceGroup;

/// Runs a pass over tokens of sequences and returns the logits [rows, vocab_size] of the tokens
/// that come next (Wants::last_logits), in float32 on the CPU. The caller turns gradients off.
/// Collective over the ranks of the model.
at::Tensor next_logits(const ModelRunner& model, Pass pass);
/// Returns a row of them.
std::span<const float> row_of(const at::Tensor& logits, std::size_t row);

struct EngineOptions {
  SchedulerOptions scheduler = {};
  /// Returns seconds; the same on all ranks. Null: it is always 0.
  std::function<double()> clock = {};
  const Tokenizer* tokenizer = nullptr;  ///< only stop strings and constraints need it
  /// The constraints that are compiled, of this tokenizer; null: the engine has its own.
  std::shared_ptr<GrammarCache> grammars = nullptr;
  SpeculationOptions speculation = {};  ///< beams have no drafts
  KvCacheType kv_cache_type = KvCacheType::same;
  std::int64_t decoder_start = -1;  ///< begins answers to what an encoder reads (TextRequest)
};

class Engine {
 public:
  /// `model` must have its weights bound. It and the tokenizer must outlive the engine. UserError
  /// when an option is out of range.
  explicit Engine(const ModelRunner& model, const EngineOptions& options = {});
  ~Engine();

  /// Returns the name of the request in updates. UserError when the request cannot be served.
  SequenceId add_request(TextRequest request);
  /// Ends a request with all its texts. It gets no more updates. Returns false if it has ended
  /// before.
  bool cancel(SequenceId request);
  /// Computes one pass and returns the news, in the order of the sequences in the pass. If the pass
  /// fails, all requests are as they were before. A request whose tokens cannot be sampled or
  /// scored ends with an error, and the others go on. Collective over the ranks of the model.
  std::vector<Update> step();

  /// Makes the requests compute their caches again, because the weights have changed.
  void recompute_all();

  bool is_idle() const { return running_.empty() && news_.empty(); }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  using Drafts = std::vector<std::vector<DraftToken>>;

  struct PassOutput {
    at::Tensor logits;               ///< [rows, vocab_size], num_logits() of each run
    at::Tensor hidden = {};          ///< [rows, h], what Pooler::num_rows() says of each run
    at::Tensor routed_experts = {};  ///< int32 [tokens, MoE layers, topk], if a run wants them
  };
  /// What a pass tells of a run.
  struct RunResult {
    std::vector<SampledToken> scored = {};  ///< next tokens of the prompt
    std::vector<SampledToken> drawn = {};   ///< the accepted drafts and one more token of the text
    std::vector<SampledToken> firsts = {};  ///< first tokens of RunningText::siblings
    std::vector<float> logprobs = {};       ///< of a beam, after penalties
    at::Tensor hidden = {};                 ///< rows for SequenceGroup::pooler
    at::Tensor routed_experts = {};         ///< of the tokens from `first` on, but rejected drafts
    std::int64_t first = 0;                 ///< position of the first token
    std::exception_ptr error = {};          ///< the UserError that ends the request
  };

  /// Gives a cache the blocks of the run's sequence, and the states of the tokens before the run.
  /// The first run of a sequence computes its encoder's text.
  void prepare_cache(SequenceCache& cache, const ScheduledRun& run);
  /// Keeps the states that sequences with the same beginning will need, and drops others.
  void keep_states();
  /// Returns the drafts of each run, and shortens the runs that get fewer than were planned.
  Drafts propose(StepPlan& plan);
  /// Lets decode steps of a text have drafts.
  void allow_drafts(SequenceId sequence);
  /// Returns how many last tokens of a run need logits.
  std::int64_t num_logits(const ScheduledRun& run) const;
  PassOutput run_pass(const StepPlan& plan, const Drafts& drafts);
  /// Gives each result what its run computed besides logits.
  void divide(const PassOutput& output, const StepPlan& plan, std::vector<RunResult>& results);
  /// Gives each result that wants them the experts of its tokens. The drafts have been verified.
  void divide_experts(const PassOutput& output, const StepPlan& plan,
                      std::vector<RunResult>& results) const;
  /// Computes a pass. Returns the result of each run.
  std::vector<RunResult> compute(const StepPlan& plan, const Drafts& drafts);
  /// Takes the result of a run.
  void take(SequenceId sequence, RunResult result);
  /// Continues the beams of a group, whose log-probabilities are all there.
  void continue_beams(SequenceGroup& group);
  /// Tells a token of a text, its end, or both.
  void tell(RunningText& text, std::optional<std::int64_t> token,
            std::optional<FinishReason> reason);
  /// Adds a token to a text and tells it. Returns whether the text has ended.
  bool append(RunningText& text, const SampledToken& token);
  /// Tells the best texts of a group of beams and ends it. Those that did not stop have ended for
  /// `reason`.
  void finish_beams(SequenceGroup& group, FinishReason reason);
  /// Ends a text with its siblings, or all beams, not because of a token.
  void finish(SequenceId sequence, FinishReason reason);
  /// Adds a text to running_, and drops it.
  void add_text(SequenceId sequence, std::unique_ptr<RunningText> text);
  void drop(SequenceId sequence);

  ModelRunner model_;
  EngineOptions options_;
  Scheduler scheduler_;
  BlockMemory memory_;
  std::map<BlockId, SequenceCache> snapshots_;  ///< states behind published blocks
  std::unique_ptr<Drafter> drafter_;
  std::int64_t num_draft_steps_ = 0;  ///< steps that might have had drafts
  std::map<SequenceId, std::unique_ptr<RunningText>> running_;  ///< by sequence
  std::set<std::pair<SequenceId, SequenceId>> places_;  ///< of running_: {request, sequence}
  std::vector<Update> news_;                            ///< that the next step returns
};

}  // namespace megatron
