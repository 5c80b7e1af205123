#include "megatron/config/speculative_config.h"

#include <array>

#include "megatron/config/field_table.h"
#include "megatron/config/field_values.h"
#include "megatron/config/problems.h"

namespace megatron {

template <>
struct EnumNames<SpeculativeMethod> {
  using Method = SpeculativeMethod;
  static constexpr std::array<std::pair<std::string_view, Method>, 4> value{
      {{"auto", Method::automatic},
       {"ngram", Method::ngram},
       {"draft_model", Method::draft_model},
       {"mtp", Method::mtp}}};
};

SpeculativeMethod SpeculativeConfig::method() const {
  if (speculative_method != SpeculativeMethod::automatic) return speculative_method;
  return speculative_model.empty() ? SpeculativeMethod::mtp : SpeculativeMethod::draft_model;
}

const FieldTable<SpeculativeConfig>& speculative_table() {
  using Config = SpeculativeConfig;
  return field_table<Config>([](auto& t) {
    t.group("Speculative decoding");
    t.field("num_speculative_tokens", &Config::num_speculative_tokens,
            "number of tokens to propose for a text in a step, all of which one pass of the model "
            "verifies; the text is the same, and a note says how fast it came; 0: none")
        .at_least(0);
    t.field("speculative_method", &Config::speculative_method,
            "who proposes tokens: ngram, the text itself, where its last tokens were before; "
            "draft_model, --speculative-model; mtp, the model's heads of multi-token prediction; "
            "auto: draft_model if it is given, otherwise mtp");
    t.field("speculative_model", &Config::speculative_model,
            "folder of checkpoints, or Hugging Face folder, of a smaller model with the same "
            "vocabulary that proposes tokens")
        .value_name("DIR");
    t.field("speculative_rejection_sampling", &Config::speculative_rejection_sampling,
            "draw proposals from the distribution of the smaller model in place of guesses of "
            "the draws: more are accepted, but a sampled text, whose distribution is the same, is "
            "another one and depends on where proposals begin");
    t.field("ngram_prompt_lookup_max", &Config::ngram_prompt_lookup_max,
            "largest number of last tokens to look up with --speculative-method ngram")
        .at_least(1);
    t.field("ngram_prompt_lookup_min", &Config::ngram_prompt_lookup_min,
            "smallest number of last tokens to look up with --speculative-method ngram")
        .at_least(1);
  });
}

void check_speculative_options(const SpeculativeConfig& config) {
  using enum SpeculativeMethod;
  Problems problems;
  const SpeculativeMethod method = config.method();
  const bool has_model = !config.speculative_model.empty();
  if (config.num_speculative_tokens == 0 && (has_model || config.speculative_method != automatic))
    problems.add({"--speculative-method and --speculative-model", "no tokens are proposed",
                  "give --num-speculative-tokens N"});
  if (has_model && method != draft_model)
    problems.add({"--speculative-model", "the method is another one",
                  "leave it or --speculative-method out"});
  if (!has_model && method == draft_model)
    problems.add({"--speculative-method draft_model", "there is no draft model",
                  "give --speculative-model DIR"});
  if (config.speculative_rejection_sampling && method != draft_model)
    problems.add({"--speculative-rejection-sampling", "it is for a draft model",
                  "give --speculative-model DIR, or leave it out"});
  if (config.ngram_prompt_lookup_min > config.ngram_prompt_lookup_max)
    problems.add({"--ngram-prompt-lookup-min",
                  std::to_string(config.ngram_prompt_lookup_min) + " is more than the " +
                      std::to_string(config.ngram_prompt_lookup_max) +
                      " of --ngram-prompt-lookup-max",
                  "lower it"});
  problems.throw_if_any();
}

}  // namespace megatron
