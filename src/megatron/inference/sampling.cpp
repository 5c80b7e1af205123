// Top-k and top-p follow Megatron-LM (megatron/core/inference: sampling): top-k keeps ties with the
// k-th logit; top-p drops a token when the tokens before it already exceed p.
#include "megatron/inference/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/base/philox.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/models/model.h"

namespace megatron {
namespace {

std::vector<std::string> non_finite_parameter_names(Model& model) {
  std::vector<std::string> names;
  model.visit([&](Module& module) {
    for (const auto& parameter : module.parameters())
      if (count_non_finite(parameter->gemm_weight().value) > 0) names.push_back(parameter->name());
  });
  return names;
}

struct TokenLogit {
  std::int64_t id;
  float logit;
};

bool more_likely(const TokenLogit& a, const TokenLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

std::int64_t most_likely(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

std::vector<TokenLogit> keep_top_k(std::span<const float> logits, std::int64_t top_k) {
  std::vector<TokenLogit> tokens(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    tokens[i] = {static_cast<std::int64_t>(i), logits[i]};
  if (top_k > 0 && top_k < static_cast<std::int64_t>(tokens.size())) {
    const auto kth = tokens.begin() + (top_k - 1);
    std::nth_element(tokens.begin(), kth, tokens.end(), more_likely);
    const float threshold = kth->logit;
    std::erase_if(tokens, [threshold](const TokenLogit& token) { return token.logit < threshold; });
  }
  std::sort(tokens.begin(), tokens.end(), more_likely);
  return tokens;
}

std::vector<TokenProbability> softmax(const std::vector<TokenLogit>& tokens, double temperature) {
  std::vector<TokenProbability> result(tokens.size());
  const double largest = tokens.front().logit;
  double sum = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    result[i] = {tokens[i].id, std::exp((tokens[i].logit - largest) / temperature)};
    sum += result[i].probability;
  }
  for (TokenProbability& candidate : result) candidate.probability /= sum;
  return result;
}

void keep_top_p(std::vector<TokenProbability>& candidates, double top_p) {
  double before = 0;
  std::size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || before <= top_p))
    before += candidates[kept++].probability;
  candidates.resize(kept);
  for (TokenProbability& candidate : candidates) candidate.probability /= before;
}

}  // namespace

void throw_non_finite_logits(Model& model, const std::string& place, const std::string& got) {
  const std::vector<std::string> names = non_finite_parameter_names(model);
  const std::string weights =
      names.empty() ? "" : "; weights that are not finite:" + name_lines(names);
  throw UserError({place, got + weights,
                   "the run diverged or the weights are damaged: load an earlier checkpoint "
                   "(`megatron checkpoint verify` checks it)"});
}

void check_logits(Model& model, std::span<const float> logits, const std::string& place) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto wrong =
      std::ranges::find_if(logits, [](float x) { return std::isnan(x) || x == kInfinity; });
  if (wrong != logits.end()) {
    throw_non_finite_logits(
        model, place + ": the model's logit of token " + std::to_string(wrong - logits.begin()),
        std::isnan(*wrong) ? "NaN" : "infinity");
  }
  if (*std::ranges::max_element(logits) == -kInfinity)
    throw_non_finite_logits(model, place + ": every logit of the model", "-infinity");
}

void check_sampling_options(const SamplingOptions& options) {
  if (!(options.temperature >= 0) || std::isinf(options.temperature)) {
    throw UserError({"--temperature", std::to_string(options.temperature),
                     "give a number of at least 0 (0 takes the most likely token)"});
  }
  if (options.top_k < 0)
    throw UserError({"--top-k", std::to_string(options.top_k),
                     "give a number of at least 0 (0 keeps every token)"});
  if (!(options.top_p >= 0 && options.top_p <= 1)) {
    throw UserError({"--top-p", std::to_string(options.top_p),
                     "give a probability from 0 to 1 (0 keeps every token)"});
  }
}

std::vector<TokenProbability> sampling_distribution(std::span<const float> logits,
                                                    const SamplingOptions& options) {
  if (options.temperature == 0 || options.top_k == 1) return {{most_likely(logits), 1.0}};
  std::vector<TokenProbability> candidates =
      softmax(keep_top_k(logits, options.top_k), options.temperature);
  if (options.top_p > 0 && options.top_p < 1) keep_top_p(candidates, options.top_p);
  return candidates;
}

double sampling_uniform(std::uint64_t seed, const SamplingSite& site) {
  const auto lanes = philox_block(philox_key(seed, "sampling"), site.position / 4, site.prompt);
  return (lanes[site.position % 4] + 0.5) / 4294967296.0;
}

std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          const SamplingSite& site) {
  const std::vector<TokenProbability> candidates = sampling_distribution(logits, options);
  double remaining = sampling_uniform(options.seed, site);
  for (const TokenProbability& candidate : candidates) {
    remaining -= candidate.probability;
    if (remaining < 0) return candidate.id;
  }
  const auto possible = std::find_if(candidates.rbegin(), candidates.rend(),
                                     [](const TokenProbability& c) { return c.probability > 0; });
  return possible->id;
}

}  // namespace megatron
