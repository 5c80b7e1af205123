#include "megatron/config/sampling_params.h"

#include <algorithm>
#include <cmath>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/config/field_table.h"
#include "megatron/config/field_values.h"
#include "megatron/config/problems.h"

namespace megatron {
namespace {

/// Logits remain finite in float32 when they are multiplied or divided by these.
constexpr double kLeastPenalty = 1e-30, kLargestPenalty = 1e30;
/// Numbers of tokens to this power remain finite in float64.
constexpr double kLargestPower = 30;

/// Parses pairs "ID:X", separated by commas.
void read_logit_bias(SamplingParams& params, std::span<const std::string> values) {
  params.logit_bias.clear();
  for (const std::string& pair : split_numbers(values)) {
    const std::size_t colon = pair.find(':');
    if (colon == std::string::npos)
      throw FieldError{"'" + pair + "' is no pair of a token id and a number", "write it as ID:X"};
    const LogitBias one{integer_value(pair.substr(0, colon)), number_value(pair.substr(colon + 1))};
    if (one.id < 0 || std::abs(one.bias) > 100)
      throw FieldError{"'" + pair + "' is out of range",
                       "give an id of at least 0 and a number from -100 to 100"};
    params.logit_bias.push_back(one);
  }
}

/// Returns a JSON schema, or that of a file.
std::string schema_text(const std::string& value) {
  const std::size_t begin = value.find_first_not_of(" \t\r\n");
  const bool is_schema = begin != std::string::npos && value[begin] == '{';
  if (is_schema || value == "true" || value == "false") return value;
  try {
    return read_file(value);
  } catch (const UserError& error) {
    throw FieldError{error.parts().problem(), "give a JSON schema or its file"};
  }
}

/// Declares a flag that sets the constraint.
template <class Table>
auto constraint_field(Table& table, const char* name, OutputConstraint::Kind kind,
                      const char* help) {
  const auto read = [kind](SamplingParams& params, std::span<const std::string> values) {
    OutputConstraint& own = params.constraint;
    if (values.empty() && own.kind != kind) return;
    if (own.kind != OutputConstraint::Kind::none && own.kind != kind)
      throw FieldError{"the output has another constraint already",
                       "give one of --guided-regex, --guided-choice and --guided-json"};
    own = {};
    for (const std::string& value : values)
      own.texts.push_back(kind == OutputConstraint::Kind::json_schema ? schema_text(value) : value);
    if (!own.texts.empty()) own.kind = kind;
  };
  const auto write = [kind](const SamplingParams& params) {
    return params.constraint.kind == kind ? params.constraint.texts : std::vector<std::string>{};
  };
  return table.custom(name, ValueKind::text, read, write, help);
}

std::vector<std::string> write_logit_bias(const SamplingParams& params) {
  std::string text;
  for (const auto& [id, bias] : params.logit_bias)
    text += (text.empty() ? "" : ",") + std::to_string(id) + ":" + number_text(bias);
  return text.empty() ? std::vector<std::string>{} : std::vector{text};
}

}  // namespace

const FieldTable<SamplingParams>& sampling_table() {
  using Params = SamplingParams;
  return field_table<Params>([](auto& t) {
    t.group("Sampling");
    t.field("max_new_tokens", &Params::max_new_tokens,
            "largest number of tokens to generate per prompt")
        .at_least(0)
        .alias("num-tokens-to-generate");
    t.field("min_new_tokens", &Params::min_new_tokens,
            "smallest number of tokens before an end token or --stop ends a text")
        .at_least(0);
    t.field("termination_id", &Params::termination_id,
            "token id that ends generation; none: the end tokens of the tokenizer")
        .at_least(0);
    t.field("ignore_eos", &Params::ignore_eos, "continue at the end tokens of the tokenizer");
    t.field("stop", &Params::stop, "end a text before this string").repeatable().value_name("TEXT");
    t.field("temperature", &Params::temperature,
            "divide the logits by this; 0: always take the most likely token")
        .at_least(0);
    t.field("top_k", &Params::top_k,
            "sample from the k most likely tokens, and those as likely as the k-th; 0: from all")
        .at_least(0)
        .alias("top_k");
    t.field("top_p", &Params::top_p,
            "sample from the smallest set of most likely tokens whose total probability exceeds "
            "this; 0: from all")
        .between(0, 1)
        .alias("top_p");
    t.field("min_p", &Params::min_p,
            "sample from the tokens with at least this share of the probability of the most likely "
            "one; 0: from all")
        .between(0, 1);
    t.field("typical_p", &Params::typical_p,
            "sample from the tokens whose log-probability is nearest to its mean, until their "
            "total probability reaches this; 0: from all")
        .between(0, 1);
    t.field("repetition_penalty", &Params::repetition_penalty,
            "divide positive and multiply negative logits of tokens of the prompt and the text by "
            "this; 1: change nothing")
        .between(kLeastPenalty, kLargestPenalty);
    t.field("presence_penalty", &Params::presence_penalty,
            "subtract this from the logits of tokens of the text")
        .between(-2, 2);
    t.field("frequency_penalty", &Params::frequency_penalty,
            "subtract this from the logit of a token as often as it is in the text")
        .between(-2, 2);
    t.custom("logit_bias", ValueKind::text, read_logit_bias, write_logit_bias,
             "add X to the logit of the token ID, for each of a list")
        .value_name("ID:X,...");
    t.field("allowed_token_ids", &Params::allowed_token_ids,
            "generate only the tokens with these ids")
        .at_least(0);
    constraint_field(t, "guided_regex", OutputConstraint::Kind::regex,
                     "generate a text that matches this regular expression")
        .value_name("REGEX");
    constraint_field(t, "guided_choice", OutputConstraint::Kind::choice,
                     "generate one of these texts")
        .repeatable()
        .value_name("TEXT");
    constraint_field(t, "guided_json", OutputConstraint::Kind::json_schema,
                     "generate JSON that is valid by this JSON schema, or that in a file")
        .value_name("SCHEMA");
    t.field("seed", &Params::seed,
            "random seed of sampling; a text depends only on the seed, the prompt and the index of "
            "the prompt")
        .at_least(0);
    t.field("n", &Params::n, "number of texts per prompt").at_least(1);
    t.field("best_of", &Params::best_of,
            "number of texts to sample per prompt, of which the --n with the largest mean "
            "log-probability are printed; 0: --n")
        .at_least(0);
    t.field("num_beams", &Params::num_beams,
            "search the most likely texts with this many beams, as transformers does, instead of "
            "sampling; 1: sample")
        .at_least(1);
    t.field("length_penalty", &Params::length_penalty,
            "divide the log-probability of a beam by its number of tokens to the power of this")
        .between(-kLargestPower, kLargestPower);
    t.field("return_log_probs", &Params::return_log_probs,
            "add logprobs of the generated tokens and prompt_logprobs to the JSON object");
    t.field("logprobs", &Params::logprobs,
            "add logprobs of the generated tokens, and top_logprobs of so many of the most likely "
            "ones, to the JSON object")
        .at_least(0)
        .alias("top-n-logprobs");
    t.field("prompt_logprobs", &Params::prompt_logprobs,
            "add prompt_logprobs, of which the first is null, to the JSON object");
  });
}

void SamplingParams::add_end_tokens(std::span<const std::int64_t> of_model) {
  if (termination_id)
    stop_token_ids.push_back(*termination_id);
  else if (!ignore_eos)
    stop_token_ids.insert(stop_token_ids.end(), of_model.begin(), of_model.end());
}

void check_sampling_options(const SamplingParams& params, std::int64_t vocab_size) {
  Problems problems;
  SamplingParams checked;
  for (const Field& field : sampling_table().set().fields) {
    try {
      const std::vector<std::string> values = field.get(&params);
      if (!values.empty()) assign(field, &checked, values);
    } catch (const FieldError& error) {
      problems.add({field.flag() + ": " + error.reason, "", error.fix});
    }
  }
  const auto need = [&](bool holds, const char* flag, const std::string& got, std::string fix) {
    if (!holds) problems.add({flag, got, std::move(fix)});
  };
  const std::string n = std::to_string(params.n);
  const auto need_token = [&](std::int64_t id, const char* flag) {
    need(vocab_size == 0 || id < vocab_size, flag, "token id " + std::to_string(id),
         "the model's vocabulary has " + std::to_string(vocab_size) +
             " tokens, with the ids 0 to " + std::to_string(vocab_size - 1));
  };
  for (const LogitBias& one : params.logit_bias) need_token(one.id, "--logit-bias");
  if (params.termination_id) need_token(*params.termination_id, "--termination-id");
  for (const std::int64_t id : params.stop_token_ids) {
    if (id == params.termination_id) continue;
    need(id >= 0, "stop_token_ids", "token id " + std::to_string(id), "give ids of at least 0");
    need_token(id, "stop_token_ids");
  }
  for (const std::int64_t id : params.allowed_token_ids) need_token(id, "--allowed-token-ids");
  const bool is_constrained = params.constraint.kind != OutputConstraint::Kind::none;
  need(!is_constrained || params.allowed_token_ids.empty(), "--allowed-token-ids",
       "has no meaning with a constraint of the output", "leave one of them out");
  need(
      !is_constrained || params.num_beams == 1 || !params.stop_token_ids.empty() || vocab_size == 0,
      "--num-beams", "beams of constrained texts end at end tokens, and there are none",
      "leave out --ignore-eos, or give --termination-id");
  for (const std::int64_t id : params.end_thinking_ids) {
    need(id >= 0, "end_thinking_ids", "token id " + std::to_string(id), "give ids of at least 0");
    need_token(id, "end_thinking_ids");
  }
  need(params.min_new_tokens <= params.max_new_tokens, "--min-new-tokens",
       std::to_string(params.min_new_tokens),
       "give at most --max-new-tokens, " + std::to_string(params.max_new_tokens));
  need(std::ranges::count(params.stop, "") == 0, "--stop", "an empty text ends every text",
       "leave it out");
  need(std::ranges::count(params.bad_words, "") == 0, "bad_words", "an empty text is in every text",
       "leave it out");
  need(params.best_of == 0 || params.best_of >= params.n, "--best-of",
       std::to_string(params.best_of), "give at least --n, " + n);
  if (params.num_beams > 1) {
    const char* const alone = "has no meaning with --num-beams";
    need(params.n <= params.num_beams, "--n", n,
         "give at most --num-beams, " + std::to_string(params.num_beams));
    need(params.best_of == 0, "--best-of", alone, "leave one of them out");
    need(params.stop.empty(), "--stop", alone, "leave one of them out");
    need(!params.reports_logprobs(), "--logprobs", alone, "leave one of them out");
    need(!params.return_routed_experts, "return_routed_experts", alone, "leave one of them out");
  }
  problems.throw_if_any();
}

}  // namespace megatron
