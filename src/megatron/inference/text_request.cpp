#include "megatron/inference/text_request.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace megatron {

std::string_view finish_reason_name(FinishReason reason) {
  constexpr std::string_view kNames[] = {"stop", "length", "max_positions", "deadline"};
  return kNames[static_cast<std::size_t>(reason)];
}

std::vector<Generation> best_texts(std::vector<Generation> texts, const SamplingParams& params) {
  if (params.num_samples() <= params.n) return texts;
  std::vector<SampledToken> prompt_tokens = std::move(texts.front().prompt_tokens);
  const auto score = [](const Generation& text) {
    const bool has_no_tokens = text.ids.empty() && text.finish_reason != FinishReason::stop;
    return has_no_tokens ? -std::numeric_limits<double>::infinity() : text.score;
  };
  std::ranges::stable_sort(texts, std::ranges::greater(), score);
  texts.resize(static_cast<std::size_t>(params.n));
  texts.front().prompt_tokens = std::move(prompt_tokens);
  return texts;
}

void take_finished(Update& update, std::vector<Generation>& texts) {
  if (!update.finished) return;
  const auto number = static_cast<std::size_t>(update.text);
  texts.resize(std::max(texts.size(), number + 1));
  texts[number] = *std::move(update.finished);
}

}  // namespace megatron
