#include "megatron/inference/generator.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/inference/input_ids.h"

namespace megatron {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::max_positions:
      return "max_positions";
  }
  return "";
}

namespace {

/// A text that is being generated.
struct Sequence {
  std::size_t place;                ///< of its prompt
  std::vector<std::int64_t> input;  ///< tokens for the next pass
  SequenceCache cache = {};
};

/// Runs a pass over the inputs and returns the logits of the tokens that come next.
at::Tensor next_logits(const ModelRunner& model, std::vector<Sequence>& sequences) {
  std::vector<std::span<const std::int64_t>> inputs;
  Caches caches;
  for (Sequence& sequence : sequences) {
    inputs.emplace_back(sequence.input);
    caches.push_back(&sequence.cache);
  }
  const Microbatch tokens = microbatch_of(inputs);
  return model.infer({.microbatch = tokens, .wants = Wants::last_logits, .caches = &caches})
      .to(c10::kCPU, c10::kFloat)
      .contiguous();
}

}  // namespace

Generator::Generator(const ModelRunner& model, GeneratorOptions options)
    : model_(model), options_(std::move(options)) {
  check_sampling_options(options_.sampling);
  if (options_.max_new_tokens < 0) {
    throw UserError({"--max-new-tokens", std::to_string(options_.max_new_tokens),
                     "give a number of at least 0"});
  }
}

std::int64_t Generator::next_token(std::span<const float> logits, std::uint64_t prompt_index,
                                   std::int64_t position) const {
  check_logits(
      model_.model(), logits,
      "prompt " + std::to_string(prompt_index + 1) + ", position " + std::to_string(position));
  return sample_token(logits, options_.sampling,
                      {prompt_index, static_cast<std::uint64_t>(position)});
}

std::vector<Generation> Generator::generate(
    std::span<const Prompt> prompts,
    const std::function<void(std::size_t place, std::int64_t id)>& on_token) const {
  std::vector<Sequence> running;
  for (const Prompt& prompt : prompts) {
    check_token_ids(prompt.ids, model_.config(), "prompt " + std::to_string(prompt.index + 1));
    running.push_back({running.size(), {prompt.ids.begin(), prompt.ids.end()}});
  }
  const c10::InferenceMode no_gradients;
  const std::int64_t limit = max_sequence_length(model_.config());
  std::vector<Generation> results(prompts.size());
  const auto has_ended = [&](const Sequence& sequence) {
    Generation& result = results[sequence.place];
    if (sequence.input.empty() || std::ssize(result.ids) >= options_.max_new_tokens) return true;
    if (sequence.cache.length + std::ssize(sequence.input) <= limit) return false;
    result.finish_reason = FinishReason::max_positions;
    return true;
  };
  while (true) {
    std::erase_if(running, has_ended);
    if (running.empty()) return results;
    const at::Tensor logits = next_logits(model_, running);
    const float* row = logits.const_data_ptr<float>();
    for (Sequence& sequence : running) {
      const std::span<const float> own(row, static_cast<std::size_t>(logits.size(1)));
      row += logits.size(1);
      const std::int64_t id = next_token(own, prompts[sequence.place].index, sequence.cache.length);
      if (std::ranges::count(options_.stop_token_ids, id) > 0) {
        results[sequence.place].finish_reason = FinishReason::stop;
        sequence.input.clear();
        continue;
      }
      sequence.input = {id};
      results[sequence.place].ids.push_back(id);
      if (on_token) on_token(sequence.place, id);
    }
  }
}

Generation Generator::generate(std::span<const std::int64_t> prompt, std::uint64_t prompt_index,
                               const std::function<void(std::int64_t)>& on_token) const {
  const Prompt alone{prompt, prompt_index};
  return generate({&alone, 1},
                  [&](std::size_t, std::int64_t id) {
                    if (on_token) on_token(id);
                  })
      .front();
}

}  // namespace megatron
