#include "megatron/inference/generator.h"

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"

namespace megatron {

namespace {

/// Longer texts than anybody has memory for.
constexpr std::int64_t kMaxNewTokens = std::int64_t{1} << 26;

}  // namespace

Generator::Generator(const ModelRunner& model, SamplingParams params, const EngineOptions& options)
    : model_(model), params_(std::move(params)), options_(options) {
  check_sampling_options(params_, model_.config().vocab_size);
  params_.max_new_tokens = std::min(params_.max_new_tokens, kMaxNewTokens);
  if (params_.num_beams > 1) options_.speculation = {};
  if (options_.tokenizer != nullptr && !options_.grammars)
    options_.grammars = std::make_shared<GrammarCache>(*options_.tokenizer);
  MEGATRON_CHECK(options.tokenizer != nullptr || params_.stop.empty(),
                 "stop strings need a tokenizer");
}

Generation Generator::generate(std::span<const std::int64_t> prompt, std::uint64_t prompt_index,
                               const std::function<void(std::int64_t)>& on_token) const {
  const Prompt alone{prompt, prompt_index};
  const auto on_own = [&](std::size_t, std::int64_t id) {
    if (on_token) on_token(id);
  };
  return generate_all({&alone, 1}, on_own).front().front();
}

std::vector<std::vector<Generation>> Generator::generate_all(std::span<const Prompt> prompts,
                                                             const OnToken& on_token) const {
  Engine engine(model_, options_);
  add_requests(engine, prompts);
  const auto num_samples = static_cast<std::size_t>(params_.num_samples());
  std::vector<std::vector<Generation>> results(prompts.size());
  while (!engine.is_idle()) {
    for (Update& update : engine.step()) {
      if (update.error) std::rethrow_exception(update.error);
      const auto place = static_cast<std::size_t>(update.request);
      if (update.token && on_token)
        on_token(place * num_samples + static_cast<std::size_t>(update.text), *update.token);
      take_finished(update, results[place]);
    }
  }
  for (std::vector<Generation>& texts : results) texts = best_texts(std::move(texts), params_);
  return results;
}

void Generator::check(std::span<const Prompt> prompts) const {
  Engine engine(model_, options_);
  for (const Prompt& prompt : prompts) {
    add_requests(engine, {&prompt, 1});
    engine.cancel(0);
  }
}

void Generator::add_requests(Engine& engine, std::span<const Prompt> prompts) const {
  for (std::size_t i = 0; i < prompts.size(); ++i)
    engine.add_request({.prompt = {prompts[i].ids.begin(), prompts[i].ids.end()},
                        .params = params_,
                        .site = {.prompt = prompts[i].index},
                        .id = i});
}

}  // namespace megatron
