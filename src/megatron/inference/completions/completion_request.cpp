#include "megatron/inference/completions/completion_request.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/config/field_table.h"
#include "megatron/config/field_values.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/load_tokenizer.h"

namespace megatron {
namespace {

constexpr std::int64_t kMaxChoices = 128;  // OpenAI's limit of n

/// For clients 0 is the least share, not all: the likeliest token.
constexpr double kLeastTopP = 1e-9;

std::vector<std::int64_t> integers(const JsonCursor& list) {
  std::vector<std::int64_t> values;
  for (const JsonCursor& value : list.elements()) values.push_back(value.integer());
  return values;
}

/// Sets a setting of sampling_table() to texts of values.
void set_sampling(CompletionRequest& request, std::string_view name, const JsonCursor& value,
                  const std::vector<std::string>& texts) {
  try {
    assign(*sampling_table().set().find_name(name), &request.params, texts);
  } catch (const FieldError& error) {
    throw UserError({value.name(), error.reason, error.fix});
  }
}

/// Sets a setting of one number or truth value.
void set_scalar(CompletionRequest& request, const std::string& name, const JsonCursor& value) {
  const Field* field = sampling_table().set().find_name(name);
  if (field == nullptr || field->kind == ValueKind::text)
    throw UserError({value.name(), "is not known here", "leave it out"});
  std::string text = field->kind == ValueKind::boolean   ? scalar_text(value.boolean())
                     : field->kind == ValueKind::integer ? scalar_text(value.integer())
                                                         : scalar_text(value.number());
  if (name == "top_k" && text == "-1") text = "0";  // vLLM's "all"
  set_sampling(request, name, value, {text});
}

/// Returns a text in which members of the body take the place of the flags of sampling.
std::string with_member_names(std::string text) {
  for (std::size_t at = 0; (at = text.find("--", at)) != std::string::npos; ++at) {
    const std::size_t end =
        std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at), text.size());
    std::string name = text.substr(at + 2, end - at - 2);
    std::ranges::replace(name, '-', '_');
    if (sampling_table().set().find_name(name) == nullptr) continue;  // a flag of the program
    if (name == "max_new_tokens" || name == "min_new_tokens") name.erase(3, 4);
    text.replace(at, end - at, "'" + name + "'");
  }
  return text;
}

/// Returns the member that an error is about, "SOURCE: PATH: field 'NAME'…", with its path.
std::string member_of(std::string_view what) {
  std::string path;
  for (bool is_source = true;; is_source = false) {
    const std::size_t end = what.find(": ");
    std::string_view part = what.substr(0, end);
    if (part.starts_with("field ")) part.remove_prefix(6);
    if (part.starts_with('\'')) {
      const std::size_t quote = std::min(part.find('\'', 1), part.size());
      const bool is_one = !part.substr(quote).starts_with("' and '");
      return is_one ? path.append(part.substr(1, quote - 1)) : "";
    }
    if (end == std::string_view::npos) return "";
    if (!is_source && !part.ends_with("body")) path.assign(part).append(".");
    what.remove_prefix(end + 2);
  }
}

/// Sets the constraint. UserError if there is another one.
void set_constraint(CompletionRequest& to, const JsonCursor& value, OutputConstraint::Kind kind,
                    std::vector<std::string> texts) {
  if (to.params.constraint.kind != OutputConstraint::Kind::none)
    throw UserError(
        {value.name(), "the output has another constraint already", "give one of them"});
  to.params.constraint = {kind, std::move(texts)};
}

std::vector<std::string> texts_of_list(const JsonCursor& list) {
  std::vector<std::string> texts;
  for (const JsonCursor& one : list.elements()) texts.push_back(one.text());
  return texts;
}

/// Returns a JSON schema that is a value or a text. A text of another form would name a file.
std::string schema_of(const JsonCursor& value) {
  const std::string text = value->is_string() ? value.text() : compact_json(*value);
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || (text[begin] != '{' && text != "true" && text != "false"))
    throw UserError({value.name(), "is no JSON schema", "give an object"});
  return text;
}

/// Sets a constraint by its name in vLLM.
void set_guided(CompletionRequest& to, std::string_view name, const JsonCursor& value) {
  using enum OutputConstraint::Kind;
  if (name == "regex")
    set_constraint(to, value, regex, {value.text()});
  else if (name == "choice")
    set_constraint(to, value, choice, texts_of_list(value));
  else if (name == "json")
    set_constraint(to, value, json_schema, {schema_of(value)});
  else if (name != "json_object")
    throw UserError(
        {value.name(), "is not in this version", "give regex, choice, json or json_object"});
  else if (value.boolean())
    set_constraint(to, value, json_object, {});
}

/// Reads OpenAI's response_format.
void set_response_format(CompletionRequest& to, const JsonCursor& format) {
  const JsonCursor type = format["type"];
  const std::string name = type.text();
  if (name == "text") return;
  if (name == "json_object")
    set_constraint(to, format, OutputConstraint::Kind::json_object, {});
  else if (name == "json_schema")
    set_guided(to, "json", format["json_schema"]["schema"]);
  else
    throw UserError(
        {type.name(), "'" + name + "' is not known here", "give text, json_object or json_schema"});
}

/// Gives the schema of a request the order of keys that it has in the text of the body, or of an
/// object with the member "body".
void keep_schema_order(CompletionRequest& to, std::string_view text) {
  if (to.params.constraint.kind != OutputConstraint::Kind::json_schema || text.empty()) return;
  const OrderedJson all = OrderedJson::parse(text);
  const OrderedJson& body = all.contains("body") ? all.at("body") : all;
  for (const char* place :
       {"/guided_json", "/structured_outputs/json", "/response_format/json_schema/schema"}) {
    const OrderedJson::json_pointer pointer(place);
    if (body.contains(pointer) && body.at(pointer).is_object())
      to.params.constraint.texts = {body.at(pointer).dump()};
  }
}

using Read = void (*)(CompletionRequest&, const JsonCursor&);

void refuse(CompletionRequest&, const JsonCursor& value) {
  throw UserError({value.name(), "is not in this version", "leave it out"});
}
void ignore(CompletionRequest&, const JsonCursor&) {}
template <bool neutral>
void refuse_unless(CompletionRequest& to, const JsonCursor& value) {
  if (value.boolean() != neutral) refuse(to, value);
}

/// The members that are no settings, or have another name or form. `user` and the like describe the
/// request to OpenAI's servers.
const std::map<std::string_view, Read> kMembers{
    {"model", [](auto& to, auto& value) { to.model = value.text(); }},
    {"prompt", [](auto& to, auto& value) { to.prompts = completion_prompts(value); }},
    {"echo", [](auto& to, auto& value) { to.echo = value.boolean(); }},
    {"stream", [](auto& to, auto& value) { to.stream = value.boolean(); }},
    {"priority", [](auto& to, auto& value) { to.priority = value.integer(); }},
    {"max_tokens", [](auto& to, auto& value) { set_scalar(to, "max_new_tokens", value); }},
    {"min_tokens", [](auto& to, auto& value) { set_scalar(to, "min_new_tokens", value); }},
    {"logprobs",
     [](auto& to, auto& value) {
       set_scalar(to, "logprobs", value);
       to.params.return_log_probs = true;
     }},
    {"seed",
     [](auto& to, auto& value) {
       const std::int64_t seed = value.integer();
       to.has_seed = seed != -1;  // vLLM's "none"
       to.params.seed = seed & std::numeric_limits<std::int64_t>::max();
     }},
    {"stop",
     [](auto& to, auto& value) {
       if (!value->is_array()) return to.params.stop.push_back(value.text());
       for (const JsonCursor& one : value.elements()) to.params.stop.push_back(one.text());
     }},
    {"stop_token_ids", [](auto& to, auto& value) { to.params.stop_token_ids = integers(value); }},
    {"logit_bias",
     [](auto& to, auto& value) {
       std::vector<std::string> pairs;
       for (const auto& [id, bias] : value.object().items())
         pairs.push_back(id + ":" + number_text(value[id].number()));
       set_sampling(to, "logit_bias", value, pairs);
     }},
    {"top_p",
     [](auto& to, auto& value) {
       set_scalar(to, "top_p", value);
       if (to.params.top_p == 0) to.params.top_p = kLeastTopP;
     }},
    {"allowed_token_ids",
     [](auto& to, auto& value) {
       to.params.allowed_token_ids = integers(value);
       if (to.params.allowed_token_ids.empty())
         throw UserError({value.name(), "is empty: no token could follow", "leave it out"});
     }},
    {"guided_regex", [](auto& to, auto& value) { set_guided(to, "regex", value); }},
    {"guided_choice", [](auto& to, auto& value) { set_guided(to, "choice", value); }},
    {"guided_json", [](auto& to, auto& value) { set_guided(to, "json", value); }},
    {"structured_outputs",
     [](auto& to, auto& value) {
       for (const auto& [name, json] : value.object().items())
         if (!json.is_null()) set_guided(to, name, value[name]);
     }},
    {"response_format", [](auto& to, auto& value) { set_response_format(to, value); }},
    {"stream_options",
     [](auto& to, auto& value) {
       value.object();
       if (const auto usage = value.find("include_usage")) to.include_usage = usage->boolean();
     }},
    {"return_token_ids", [](auto& to, auto& value) { to.return_token_ids = value.boolean(); }},
    {"return_routed_experts",
     [](auto& to, auto& value) { to.params.return_routed_experts = value.boolean(); }},
    {"return_tokens_as_token_ids",
     [](auto& to, auto& value) { to.tokens_as_ids = value.boolean(); }},
    {"skip_special_tokens",
     [](auto& to, auto& value) { to.params.skip_special_tokens = value.boolean(); }},
    {"add_special_tokens", [](auto& to, auto& value) { to.add_special_tokens = value.boolean(); }},
    {"include_stop_str_in_output",
     [](auto& to, auto& value) { to.params.include_stop = value.boolean(); }},
    {"bad_words", [](auto& to, auto& value) { to.params.bad_words = texts_of_list(value); }},
    {"truncate_prompt_tokens",
     [](auto& to, auto& value) {
       to.truncate_prompt_tokens = value.integer();
       if (to.truncate_prompt_tokens < 1)
         throw UserError({value.name(), value->dump(), "give a number of tokens, at least 1"});
     }},
    {"user", ignore},
    {"metadata", ignore},
    {"request_id", ignore},  // X-Request-Id is that
    {"suffix", refuse},
    {"return_log_probs", refuse},
    {"logits_processors", refuse},
    {"prompt_embeds", refuse},
    {"guided_grammar", refuse},
    {"guided_whitespace_pattern", refuse},
    {"chat_template", refuse},
    {"mm_processor_kwargs", refuse},
    {"cache_salt", refuse},
    {"kv_transfer_params", refuse},
    {"vllm_xargs", refuse},
    {"use_beam_search", refuse_unless<false>},
    {"include_reasoning", refuse_unless<true>},
    {"spaces_between_special_tokens", refuse_unless<true>},
    {"prompt_logprobs",
     [](auto& to, auto& value) {
       to.params.prompt_best = value.integer();
       if (to.params.prompt_best < 0)
         throw UserError({value.name(), "must be at least 0", "give a number of likely tokens"});
     }},
};

}  // namespace

CompletionRequest read_completion(const JsonCursor& body, std::string_view text) {
  CompletionRequest request{.prompts = completion_prompts(body["prompt"])};
  for (const auto& [key, json] : body.object().items()) {
    if (json.is_null()) continue;
    const JsonCursor value = body[key];
    request.given.push_back(key);
    if (const auto member = kMembers.find(key); member != kMembers.end())
      member->second(request, value);
    else
      set_scalar(request, key, value);
  }
  keep_schema_order(request, text);
  SamplingParams& params = request.params;
  params.prompt_logprobs = params.prompt_best >= 0 || (request.echo && params.return_log_probs);
  const auto exclude = [&](bool is_wrong, const char* member, const char* other) {
    if (is_wrong)
      throw UserError({body.place() + ": field '" + member + "'",
                       std::string("has no meaning with '") + other + "'",
                       "leave one of them out"});
  };
  exclude(params.prompt_best >= 0 && request.stream, "prompt_logprobs", "stream");
  exclude(request.truncate_prompt_tokens > 0 && request.echo, "truncate_prompt_tokens", "echo");
  try {
    check_sampling_options(params);
  } catch (const UserError& error) {
    const auto [what, got, fix] = with_members(error).parts();
    throw UserError({body.place() + ": " + what, got, fix});
  }
  if (const std::int64_t most = std::max(params.num_samples(), params.num_beams);
      most > kMaxChoices)
    throw UserError({body.place() + ": fields 'n', 'best_of' and 'num_beams'",
                     std::to_string(most) + " texts of a prompt",
                     "give at most " + std::to_string(kMaxChoices)});
  return request;
}

void CompletionRequest::truncate(std::vector<std::int64_t>& ids) const {
  if (truncate_prompt_tokens > 0 && truncate_prompt_tokens < std::ssize(ids))
    ids.erase(ids.begin(), ids.end() - truncate_prompt_tokens);
}

UserError with_members(const UserError& error) {
  const auto& [what, got, fix] = error.parts();
  return UserError({with_member_names(what), with_member_names(got), with_member_names(fix)});
}

std::vector<CompletionPrompt> completion_prompts(const JsonCursor& value) {
  if (!value->is_array()) return {value.text()};
  const std::vector<JsonCursor> elements = value.elements();
  if (elements.empty()) throw UserError({value.name(), "an empty list", "give a prompt"});
  if (elements.front()->is_number()) return {integers(value)};
  std::vector<CompletionPrompt> prompts;
  for (const JsonCursor& element : elements) {
    if (element->is_array())
      prompts.emplace_back(integers(element));
    else
      prompts.emplace_back(element.text());
  }
  return prompts;
}

std::vector<std::int64_t> completion_ids(const CompletionPrompt& prompt, const Tokenizer& tokenizer,
                                         const std::string& source, bool add_special_tokens) {
  if (const auto* text = std::get_if<std::string>(&prompt))
    return prompt_ids(tokenizer, *text, source, add_special_tokens);
  return std::get<std::vector<std::int64_t>>(prompt);
}

std::vector<std::vector<std::int64_t>> ids_of_prompts(CompletionRequest& request,
                                                      const LoadedTokenizer& tokenizer,
                                                      const std::string& source) {
  request.answers = tokenizer.has_encoder();
  const auto refuse = [&](bool is_given, const char* member) {
    if (request.answers && is_given)
      throw UserError({std::string("field '") + member + "'",
                       "an encoder reads the prompt, and the text answers it", "leave it out"});
  };
  refuse(request.echo, "echo");
  refuse(request.params.prompt_best >= 0, "prompt_logprobs");
  std::vector<std::vector<std::int64_t>> prompts;
  for (const CompletionPrompt& prompt : request.prompts) {
    std::vector<std::int64_t>& ids = prompts.emplace_back(
        completion_ids(prompt, *tokenizer.tokenizer, source, request.add_special_tokens));
    if (std::holds_alternative<std::string>(prompt) && request.add_special_tokens)
      tokenizer.end_encoded(ids);
    request.truncate(ids);
  }
  return prompts;
}

ErrorReply error_reply(const UserError& error) {
  const UserError::Parts parts = with_members(error).parts();
  return {.message = parts.one_line(), .param = member_of(parts.what)};
}

JsonText error_json(const ErrorReply& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? JsonText(nullptr) : JsonText(text);
  };
  const char* type = error.status >= 500   ? "server_error"
                     : error.status == 429 ? "rate_limit_error"
                     : error.status == 401 ? "authentication_error"
                                           : "invalid_request_error";
  return {{"error",
           {{"message", error.message},
            {"type", type},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

}  // namespace megatron
