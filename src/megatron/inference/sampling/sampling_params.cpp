#include "megatron/inference/sampling/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "megatron/config/field_values.h"
#include "megatron/config/problems.h"

namespace megatron {

void add_end_tokens(SamplingParams& params, std::span<const std::int64_t> ids) {
  if (!params.ignore_eos)
    params.stop_token_ids.insert(params.stop_token_ids.end(), ids.begin(), ids.end());
}

void check_sampling_options(const SamplingParams& params, std::int64_t vocab_size) {
  Problems problems;
  const auto need = [&](bool holds, const char* flag, double value, const char* fix) {
    if (!holds) problems.add({flag, number_text(value), fix});
  };
  const auto is_share = [](double x) { return x >= 0 && x <= 1; };
  need(params.temperature >= 0 && std::isfinite(params.temperature), "--temperature",
       params.temperature, "give a number of at least 0 (0 takes the most likely token)");
  const auto need_count = [&](std::int64_t value, std::int64_t least, const char* flag) {
    if (value < least)
      problems.add(
          {flag, std::to_string(value), "give a number of at least " + std::to_string(least)});
  };
  need(params.top_k >= 0, "--top-k", static_cast<double>(params.top_k),
       "give a number of at least 0 (0 keeps every token)");
  need(is_share(params.top_p), "--top-p", params.top_p,
       "give a probability from 0 to 1 (0 keeps every token)");
  need(is_share(params.min_p), "--min-p", params.min_p,
       "give a number from 0 to 1 (0 keeps every token)");
  need(is_share(params.typical_p), "--typical-p", params.typical_p,
       "give a probability from 0 to 1 (0 keeps every token)");
  need(params.repetition_penalty > 0 && std::isfinite(params.repetition_penalty),
       "--repetition-penalty", params.repetition_penalty,
       "give a number above 0 (1 changes nothing)");
  need(std::abs(params.presence_penalty) <= 2, "--presence-penalty", params.presence_penalty,
       "give a number from -2 to 2");
  need(std::abs(params.frequency_penalty) <= 2, "--frequency-penalty", params.frequency_penalty,
       "give a number from -2 to 2");
  for (const LogitBias& one : params.logit_bias) {
    need(std::abs(one.bias) <= 100, "--logit-bias", one.bias, "give a number from -100 to 100");
    if (one.id < 0 || (vocab_size > 0 && one.id >= vocab_size))
      problems.add({"--logit-bias", "token id " + std::to_string(one.id),
                    vocab_size > 0 ? "the model's ids are 0 to " + std::to_string(vocab_size - 1)
                                   : "give an id of at least 0"});
  }
  need_count(params.max_new_tokens, 0, "--max-new-tokens");
  need_count(params.min_new_tokens, 0, "--min-new-tokens");
  if (params.min_new_tokens > params.max_new_tokens && params.max_new_tokens >= 0)
    problems.add({"--min-new-tokens", std::to_string(params.min_new_tokens),
                  "give at most --max-new-tokens, " + std::to_string(params.max_new_tokens)});
  if (std::ranges::count(params.stop_strings, "") > 0)
    problems.add({"--stop", "an empty text ends every text", "leave it out"});
  need_count(params.logprobs.value_or(0), 0, "--logprobs");
  need_count(params.n, 1, "--n");
  if (params.best_of != 0 && params.best_of < params.n)
    problems.add({"--best-of", std::to_string(params.best_of),
                  "give at least --n, " + std::to_string(params.n)});
  need_count(params.num_beams, 1, "--num-beams");
  need(std::isfinite(params.length_penalty), "--length-penalty", params.length_penalty,
       "give a finite number");
  if (params.num_beams > 1) {
    if (params.n > params.num_beams)
      problems.add({"--n", std::to_string(params.n),
                    "give at most --num-beams, " + std::to_string(params.num_beams)});
    for (const auto& [is_given, flag] : std::initializer_list<std::pair<bool, const char*>>{
             {params.best_of > 0, "--best-of"},
             {!params.stop_strings.empty(), "--stop"},
             {params.logprobs.has_value(), "--logprobs"}})
      if (is_given)
        problems.add({flag, "has no meaning with --num-beams", "leave one of them out"});
  }
  problems.throw_if_any();
}

}  // namespace megatron
