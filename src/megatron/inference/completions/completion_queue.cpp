#include "megatron/inference/completions/completion_queue.h"

#include "megatron/base/error.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/inference/score_texts.h"

namespace megatron {
namespace {

EngineOptions with_tokenizer(EngineOptions options, const Tokenizer* tokenizer) {
  options.tokenizer = tokenizer;
  return options;
}

}  // namespace

CompletionQueue::CompletionQueue(const ModelRunner& model, const LoadedTokenizer& tokenizer,
                                 EngineOptions options)
    : model_(model),
      tokenizer_(tokenizer),
      engine_(model, with_tokenizer(std::move(options), tokenizer.tokenizer.get())) {}

void CompletionQueue::add(std::uint64_t number, CompletionRequest request,
                          const std::string& source) {
  SamplingParams& params = request.params;
  params.add_end_tokens(tokenizer_.stop_token_ids);
  Open open;
  std::vector<ScoredText> scored;
  for (const CompletionPrompt& prompt : request.prompts) {
    const std::string name = source + ": prompt";
    PromptResult& result =
        open.results.emplace_back(completion_ids(prompt, *tokenizer_.tokenizer, name));
    check_token_ids(result.ids, model_.config(), name);
    result.texts.resize(static_cast<std::size_t>(params.num_samples()));
    if (params.prompt_logprobs && result.ids.size() > 1)
      scored.push_back({result.ids, std::ssize(result.ids) - 1, name});
  }
  std::vector<std::vector<SampledToken>> scores =
      score_texts(model_, scored, {.num_best = params.logprobs});
  for (std::size_t i = 0, next = 0; next < scores.size(); ++i)
    if (open.results[i].ids.size() > 1) open.results[i].tokens = std::move(scores[next++]);
  SamplingParams of_text = params;
  of_text.return_log_probs = params.needs_logprobs();
  of_text.n = 1;
  of_text.best_of = 0;
  of_text.prompt_logprobs = false;
  std::map<SequenceId, Place> places;
  try {
    for (std::size_t i = 0; i < open.results.size(); ++i) {
      for (std::size_t k = 0; k < open.results[i].texts.size(); ++k) {
        const SamplingSite site{.prompt = request.has_seed ? 0 : number,
                                .sample = i * open.results[i].texts.size() + k};
        const SequenceId id = engine_.add_request({.prompt = open.results[i].ids,
                                                   .params = of_text,
                                                   .site = site,
                                                   .priority = request.priority});
        places.emplace(id, Place{number, i, k});
      }
    }
  } catch (const UserError& error) {
    for (const auto& [id, place] : places) engine_.cancel(id);
    throw UserError({source + ": " + error.parts().what, error.parts().got, error.parts().fix});
  }
  open.num_left = std::ssize(places);
  open.request = std::move(request);
  places_.merge(places);
  requests_.emplace(number, std::move(open));
}

std::vector<FinishedCompletion> CompletionQueue::step() {
  std::vector<FinishedCompletion> finished;
  for (Update& update : engine_.step()) {
    num_new_tokens_ += update.token ? 1 : 0;
    if (!update.finished) continue;
    const Place place = places_.extract(update.request).mapped();
    Open& open = requests_.at(place.number);
    open.results[place.prompt].texts[place.sample] = std::move(*update.finished);
    if (--open.num_left > 0) continue;
    const CompletionUsage usage = usage_of(open.results);
    finished.push_back(
        {place.number,
         completion_choices(open.request, *tokenizer_.tokenizer, std::move(open.results)), usage});
    requests_.erase(place.number);
  }
  return finished;
}

}  // namespace megatron
