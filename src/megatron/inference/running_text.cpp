#include "megatron/inference/running_text.h"

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

SequenceSampler sampler_of(const SequenceGroup& group, std::int64_t sample) {
  const TextRequest& request = group.request;
  SamplingSite site = request.site;
  site.sample += static_cast<std::uint64_t>(sample);
  return {request.params, request.prompt, site, group.grammar};
}

}  // namespace

void SequenceGroup::tell_start(Generation& result) const {
  result.num_cached = std::max<std::int64_t>(0, num_cached);
  result.start_s = start_s;
}

RunningText::RunningText(std::shared_ptr<SequenceGroup> of, std::int64_t sample,
                         const Tokenizer* tokenizer, const std::shared_ptr<CacheMemory>& memory)
    : group(std::move(of)), number(sample), sampler(sampler_of(*group, sample)), cache(memory) {
  const TextRequest& request = group->request;
  if (!request.params.stop.empty())
    text = std::make_unique<GeneratedText>(*tokenizer, request.prompt, request.params);
}

std::optional<FinishReason> RunningText::append(const SampledToken& token) {
  const SamplingParams& params = group->request.params;
  result.score += token.logprob;
  if (sampler.is_stop_token(token.id)) return result.stop_token = token, FinishReason::stop;
  if (text) text->add(token.id, sampler.may_stop());
  sampler.append(token.id);
  result.ids.push_back(token.id);
  if (params.needs_logprobs()) result.tokens.push_back(token);
  if (sampler.has_ended()) return FinishReason::stop;
  if (sampler.num_new_tokens() == group->max_new_tokens) return group->limit();
  return text && text->has_stopped() ? std::optional(FinishReason::stop) : std::nullopt;
}

void RunningText::add_routed_experts(std::int64_t first, const at::Tensor& experts) {
  const auto values = experts.accessor<std::int32_t, 3>();
  const std::int64_t num_known = std::ssize(result.routed_experts) - first;
  MEGATRON_CHECK(num_known >= 0, "the experts of ", -num_known, " tokens are lacking");
  for (std::int64_t i = num_known; i < experts.size(0); ++i) {
    auto& layers = result.routed_experts.emplace_back();
    for (std::int64_t layer = 0; layer < experts.size(1); ++layer) {
      const std::int32_t* const chosen = values[i][layer].data();
      layers.emplace_back(chosen, chosen + experts.size(2));
    }
  }
}

std::vector<float> RunningText::penalized_logprobs(std::span<const float> logits) const {
  const LogSoftmax log_softmax(logits);
  std::vector<float> all;
  for (const float logit : logits) all.push_back(static_cast<float>(log_softmax(logit)));
  sampler.apply_penalties(all);
  return all;
}

Generation RunningText::take_result(FinishReason reason) {
  result.finish_reason = reason;
  result.score /= static_cast<double>(std::max<std::int64_t>(1, result.num_sampled()));
  if (text) {
    text->finish();
    if (text->has_stopped()) {
      result.finish_reason = FinishReason::stop;
      result.num_cut_bytes = text->num_cut_bytes();
      result.stop_string = text->stop_string();
    }
  }
  const std::int64_t num_computed = std::ssize(group->request.prompt) + std::ssize(result.ids) -
                                    (result.ids.empty() || result.stop_token ? 0 : 1);
  if (std::ssize(result.routed_experts) > num_computed)
    result.routed_experts.resize(static_cast<std::size_t>(num_computed));
  group->tell_start(result);
  if (number == 0) result.prompt_tokens = group->prompt_tokens;
  return std::move(result);
}

}  // namespace megatron
