#include "megatron/inference/generator.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/inference/check_logits.h"
#include "megatron/inference/token_ids.h"

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

Generator::Generator(LanguageModel& model, GeneratorOptions options)
    : model_(model), options_(std::move(options)) {
  check_sampling_options(options_.sampling);
  if (options_.max_new_tokens < 0) {
    throw UserError({"--max-new-tokens", std::to_string(options_.max_new_tokens),
                     "give a number of at least 0"});
  }
}

Generation Generator::generate(std::span<const std::int64_t> prompt, std::uint64_t prompt_index,
                               const std::function<void(std::int64_t)>& on_token) {
  check_token_ids(prompt, model_.config(), "prompt " + std::to_string(prompt_index + 1));
  const c10::InferenceMode no_gradients;
  const std::int64_t limit = max_sequence_length(model_.config());
  Generation result;
  KvCache states;
  std::vector<std::int64_t> input(prompt.begin(), prompt.end());
  std::int64_t length = 0;
  while (static_cast<std::int64_t>(result.ids.size()) < options_.max_new_tokens) {
    if (length + static_cast<std::int64_t>(input.size()) > limit) {
      result.finish_reason = FinishReason::max_positions;
      break;
    }
    const at::Tensor logits =
        model_.logits(token_tensor(input), length, &states, /*last_token_only=*/true)
            .to(c10::kCPU, c10::kFloat)
            .contiguous();
    length += static_cast<std::int64_t>(input.size());
    const std::span<const float> values(logits.const_data_ptr<float>(),
                                        static_cast<std::size_t>(logits.numel()));
    check_logits(
        model_, values,
        "prompt " + std::to_string(prompt_index + 1) + ", position " + std::to_string(length));
    const std::int64_t id =
        sample_token(values, options_.sampling, {prompt_index, static_cast<std::uint64_t>(length)});
    if (std::find(options_.stop_token_ids.begin(), options_.stop_token_ids.end(), id) !=
        options_.stop_token_ids.end()) {
      result.finish_reason = FinishReason::stop;
      break;
    }
    result.ids.push_back(id);
    if (on_token) on_token(id);
    input = {id};
  }
  return result;
}

}  // namespace megatron
