#include "megatron/inference/completions/completion_queue.h"

#include <utility>

#include "megatron/base/error.h"
#include "megatron/inference/load_tokenizer.h"

namespace megatron {
namespace {

EngineOptions with_tokenizer(EngineOptions options, const LoadedTokenizer& tokenizer) {
  options.tokenizer = tokenizer.tokenizer.get();
  options.decoder_start = tokenizer.decoder_start;
  return options;
}

/// Returns an error that names the request and its members.
UserError error_of(const std::string& source, const UserError& error) {
  const auto [what, got, fix] = with_members(error).parts();
  return UserError({what.starts_with(source) ? what : source + ": " + what, got, fix});
}

}  // namespace

CompletionQueue::CompletionQueue(const ModelRunner& model, const LoadedTokenizer& tokenizer,
                                 EngineOptions options)
    : tokenizer_(tokenizer), engine_(model, with_tokenizer(std::move(options), tokenizer)) {}

void CompletionQueue::add(std::uint64_t number, CompletionRequest request,
                          const std::string& source) {
  if (request.stream)
    throw UserError({source + ": field 'stream'", "a batch has no streams", "leave it out"});
  SamplingParams params = request.params;
  params.add_end_tokens(tokenizer_.stop_token_ids);
  Open open{.source = source};
  std::map<SequenceId, Place> places;
  try {
    const std::string name = source + ": prompt";
    for (std::vector<std::int64_t>& ids : ids_of_prompts(request, tokenizer_, name)) {
      const std::size_t i = open.results.size();
      PromptResult& result = open.results.emplace_back(std::move(ids));
      const SamplingSite site{.prompt = request.has_seed ? 0 : number,
                              .sample = i * static_cast<std::uint64_t>(params.num_samples())};
      const SequenceId id = engine_.add_request({.prompt = result.ids,
                                                 .params = params,
                                                 .site = site,
                                                 .priority = request.priority,
                                                 .source = name});
      places.emplace(id, Place{number, i});
    }
  } catch (const UserError& error) {
    for (const auto& [id, place] : places) engine_.cancel(id);
    throw error_of(source, error);
  }
  open.num_left = std::ssize(places);
  open.request = std::move(request);
  places_.merge(places);
  requests_.emplace(number, std::move(open));
}

void CompletionQueue::fail(std::uint64_t number) {
  std::erase_if(places_, [&](const auto& one) {
    if (one.second.number != number) return false;
    engine_.cancel(one.first);
    return true;
  });
  requests_.erase(number);
}

std::vector<FinishedCompletion> CompletionQueue::step() {
  std::vector<FinishedCompletion> finished;
  for (Update& update : engine_.step()) {
    num_new_tokens_ += update.token ? 1 : 0;
    const auto found = places_.find(update.request);
    if (found == places_.end()) continue;  // another prompt of its request has failed
    const Place place = found->second;
    Open& open = requests_.at(place.number);
    try {
      if (update.error) std::rethrow_exception(update.error);
    } catch (const UserError& error) {
      const std::exception_ptr named = std::make_exception_ptr(error_of(open.source, error));
      finished.push_back({.number = place.number, .error = named});
      fail(place.number);
      continue;
    }
    take_finished(update, open.results[place.prompt].texts);
    if (!update.is_last) continue;
    places_.erase(update.request);
    if (--open.num_left > 0) continue;
    finished.push_back({place.number, std::move(open.request), std::move(open.results)});
    requests_.erase(place.number);
  }
  return finished;
}

}  // namespace megatron
