#include "megatron/inference/engine.h"

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/running_text.h"

namespace megatron {
namespace {

/// Maximum number of logits of prompts in memory: 256 MiB in float32.
constexpr std::int64_t kMaxPromptLogits = std::int64_t{1} << 26;

/// Tokens that a pass takes of an encoder's text whatever the bound of a pass.
constexpr std::int64_t kLongestEncoded = 8192;

SchedulerOptions scheduler_options(const ModelRunner& model, const EngineOptions& options) {
  MEGATRON_CHECK(options.scheduler.block_size == kBlockPositions, "a block of the cache has ",
                 kBlockPositions, " positions");
  SchedulerOptions scheduler = options.scheduler;
  scheduler.keeps_states = model.model().keeps_states();
  if (shares_expert_capacity(model.config())) {  // then each text has passes of its own
    scheduler.max_running = 1;
    scheduler.prefix_cache = false;
  }
  const bool has_encoder = model.model().has_encoder();
  if (!model.model().is_causal() || has_encoder) {  // a text is computed in one pass
    scheduler.chunked_prefill = scheduler.prefix_cache = false;
    const std::int64_t longest = std::min(max_sequence_length(model.config()), kLongestEncoded);
    scheduler.max_step_tokens =
        std::max(scheduler.max_step_tokens, longest + (has_encoder ? 1 : 0));
  }
  scheduler.max_step_outputs =
      std::min(scheduler.max_step_outputs,
               std::max<std::int64_t>(1, kMaxPromptLogits / model.config().vocab_size));
  return scheduler;
}

/// Returns the tokens of words as they begin a text and as they stand behind a space.
std::vector<std::vector<std::int64_t>> ids_of_words(const std::vector<std::string>& words,
                                                    const Tokenizer& tokenizer) {
  std::vector<std::vector<std::int64_t>> all;
  for (const std::string& word : words)
    for (const char* space : {"", " "}) {
      const std::string text = word.substr(std::min(word.find_first_not_of(' '), word.size()));
      const std::vector<std::int32_t> ids = tokenizer.encode_fragment(space + text);
      if (!ids.empty()) all.emplace_back(ids.begin(), ids.end());
    }
  return all;
}

/// Lets an encoder read the prompt, unless the request has another text for it, and checks what it
/// reads. UserError if the model has no encoder for that text.
void give_to_encoder(TextRequest& request, const ModelRunner& model, std::int64_t decoder_start) {
  if (!model.model().has_encoder()) {
    if (request.encoded.empty()) return;
    throw UserError({request.source, "it has a text for an encoder, and the model has no encoder",
                     "leave that text out"});
  }
  if (request.encoded.empty()) {
    if (decoder_start < 0)
      throw UserError({request.source,
                       "the model has an encoder and a decoder, and it is not known what the "
                       "decoder begins with",
                       "give a text for each of them"});
    request.encoded = std::move(request.prompt);
    request.prompt = {decoder_start};
  }
  check_token_ids(request.encoded, model.config(), request.source + ": encoder",
                  std::ssize(request.encoded));
}

/// Returns the grammar of a request; null if it has no constraint.
std::shared_ptr<Grammar> grammar_of(const TextRequest& request, GrammarCache* grammars) {
  if (request.params.constraint.kind == OutputConstraint::Kind::none) return nullptr;
  if (grammars == nullptr)
    throw UserError({request.source, "its output is constrained, and the engine has no tokenizer",
                     "leave the constraint out"});
  std::shared_ptr<Grammar> grammar = grammars->get(request.params.constraint);
  // Other end tokens that have a text cannot be needed: single bytes can always go on.
  for (const std::int64_t id : request.params.stop_token_ids)
    if (grammar->tokens().text(id).size() == 1)
      throw UserError({request.source + ": end token " + std::to_string(id),
                       "it is a byte that the constrained output may need",
                       "give end tokens that are no text"});
  return grammar;
}

}  // namespace

Engine::Engine(const ModelRunner& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      scheduler_(scheduler_options(model, options)),
      memory_{std::make_shared<CacheMemory>(CacheMemoryOptions{
          .max_blocks = options.scheduler.num_blocks, .type = options.kv_cache_type})},
      drafter_(make_drafter(options.speculation, model, options.scheduler.num_blocks)) {
  if (options_.tokenizer != nullptr && !options_.grammars)
    options_.grammars = std::make_shared<GrammarCache>(*options_.tokenizer);
}

Engine::~Engine() = default;

void Engine::recompute_all() {
  scheduler_.recompute_all();
  snapshots_.clear();
  for (const auto& [id, own] : running_) {
    own->cache = SequenceCache(memory_.cache);
    drafter_->forget(id);
  }
}

SequenceId Engine::add_request(TextRequest request) {
  const bool embeds = request.pooling != Pooling::none;
  if (embeds) request.params.max_new_tokens = request.params.min_new_tokens = 0;
  check_sampling_options(request.params, model_.config().vocab_size);
  if (request.source.empty()) request.source = "prompt " + std::to_string(request.site.prompt + 1);
  if (!embeds && !model_.model().is_causal())
    throw UserError({request.source,
                     "the model reads whole texts, so it cannot continue or score them",
                     "use `megatron fill-mask`, or ask for embeddings"});
  if (embeds && model_.model().has_encoder())
    throw UserError({request.source, "a model with an encoder and a decoder makes no embeddings",
                     "load an encoder such as BERT"});
  if (options_.tokenizer == nullptr &&
      !(request.params.stop.empty() && request.params.bad_words.empty()))
    throw UserError({request.source,
                     "it has stop strings or bad_words, and the engine has no tokenizer",
                     "give stop tokens"});
  if (!request.params.bad_words.empty())
    request.params.bad_word_ids = ids_of_words(request.params.bad_words, *options_.tokenizer);
  if (request.params.return_routed_experts && model_.config().moe.num_experts == 0)
    throw UserError({request.source, "it has return_routed_experts, and the model has no experts",
                     "leave it out"});
  give_to_encoder(request, model_, options_.decoder_start);
  const std::int64_t size = std::ssize(request.prompt), num_encoded = std::ssize(request.encoded);
  const bool scores = request.params.prompt_logprobs && request.first_scored < size,
             only_scores = scores && request.params.max_new_tokens == 0 && !embeds;
  check_token_ids(request.prompt, model_.config(), request.source, only_scores ? size - 1 : size);
  if (request.first_scored < 1)
    throw UserError({request.source,
                     "tokens are to be scored from number " + std::to_string(request.first_scored) +
                         " on, and nothing is before it",
                     "give a number of at least 1"});
  // The last token of a text needs no position.
  const std::int64_t room = max_sequence_length(model_.config()) - size,
                     wanted = request.params.max_new_tokens,
                     max_new_tokens = room < wanted ? room + 1 : wanted;
  std::shared_ptr<Grammar> grammar = grammar_of(request, options_.grammars.get());
  auto group = std::make_shared<SequenceGroup>(SequenceGroup{.request = std::move(request),
                                                             .grammar = std::move(grammar),
                                                             .max_new_tokens = max_new_tokens});
  const TextRequest& own = group->request;
  std::vector<std::int64_t> tokens = own.prompt;
  if (only_scores) tokens.pop_back();  // nothing follows that has a score
  Request scheduled{
      .name = own.source,
      .prompt = std::move(tokens),
      .max_new_tokens = max_new_tokens,
      .priority = own.priority,
      .deadline_s = own.deadline_s,
      .finds_prefix = own.pooling != Pooling::mean && !own.params.return_routed_experts,
      .num_encoded = num_encoded};
  if (scores) scheduled.first_output = own.first_scored - 1;
  const SequenceId sequence = scheduler_.add(scheduled);
  group->id = own.id.value_or(sequence);
  auto first = std::make_unique<RunningText>(group, 0, options_.tokenizer, memory_.cache);
  if (own.params.num_beams > 1 && max_new_tokens > 0) {
    group->search = std::make_unique<BeamSearch>(own.params, max_new_tokens);
    group->beams = {sequence};
  } else {
    group->num_open = own.params.num_samples();
    const bool forks = !shares_expert_capacity(model_.config());
    for (std::int64_t i = 1; i < group->num_open; ++i) {
      auto sample = std::make_unique<RunningText>(group, i, options_.tokenizer, memory_.cache);
      if (forks)
        first->siblings.push_back(std::move(sample));
      else
        add_text(scheduler_.add(scheduled), std::move(sample));
    }
  }
  if (!group->search && first->siblings.empty()) allow_drafts(sequence);
  add_text(sequence, std::move(first));
  if (max_new_tokens == 0 && !scores && !embeds && !own.params.return_routed_experts)
    finish(sequence, FinishReason::length);
  return group->id;
}

bool Engine::cancel(SequenceId request) {
  std::erase_if(news_, [&](const Update& update) { return update.request == request; });
  std::vector<SequenceId> sequences;
  for (auto place = places_.lower_bound({request, 0});
       place != places_.end() && place->first == request; ++place)
    sequences.push_back(place->second);
  for (const SequenceId sequence : sequences) drop(sequence);
  return !sequences.empty();
}

std::vector<Update> Engine::step() {
  StepPlan plan = scheduler_.plan(options_.clock ? options_.clock() : 0);
  for (const SequenceId sequence : plan.expired)
    if (running_.contains(sequence)) finish(sequence, FinishReason::deadline);
  if (plan.runs.empty()) {
    MEGATRON_CHECK(plan.copies.empty(), "blocks are copied for no pass");
    scheduler_.advance(plan, {});
    return std::exchange(news_, {});
  }
  for (const ScheduledRun& run : plan.runs) {
    SequenceGroup& group = *running_.at(run.sequence)->group;
    if (group.num_cached >= 0) continue;
    group.num_cached = run.first;
    group.start_s = options_.clock ? options_.clock() : 0;
  }
  std::vector<RunResult> results;
  const double begin_s = monotonic_seconds();
  double drafted_s = begin_s;
  try {
    const Drafts drafts = propose(plan);
    drafted_s = monotonic_seconds();
    results = compute(plan, drafts);
  } catch (...) {
    recompute_all();
    throw;
  }
  std::vector<std::vector<std::int64_t>> ids(results.size());
  std::vector<std::int64_t> num_drawn;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].error)
      for (const SampledToken& token : results[i].drawn) ids[i].push_back(token.id);
    num_drawn.push_back(std::ssize(ids[i]));
  }
  if (options_.speculation.stats != nullptr)
    options_.speculation.stats->add(plan.runs, num_drawn, drafted_s - begin_s,
                                    monotonic_seconds() - drafted_s);
  scheduler_.advance(plan, ids);
  keep_states();
  for (std::size_t i = 0; i < results.size(); ++i)
    if (running_.contains(plan.runs[i].sequence))  // no error of another of its texts has ended it
      take(plan.runs[i].sequence, std::move(results[i]));
  return std::exchange(news_, {});
}

void Engine::allow_drafts(SequenceId sequence) {
  scheduler_.set_max_drafts(sequence, options_.speculation.config.num_speculative_tokens);
}

}  // namespace megatron
