#include "megatron/server/openapi.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>
#include <utility>

#include "megatron/base/json_text.h"
#include "megatron/server/router.h"

namespace megatron {
namespace {

constexpr RouteAccess kOpen = RouteAccess::open, kKeyed = RouteAccess::keyed,
                      kGenerates = RouteAccess::generates;
constexpr std::string_view kStream = "text/event-stream";

struct Operation {
  const char *method, *path, *summary;
  RouteAccess access;
  std::string_view body, answer;     ///< names of schemas; "": none
  std::string_view other_type = {};  ///< of answers that are no JSON; "": none
};

constexpr Operation kOperations[] = {
    {"get", "/", "The chat page", kOpen, "", "", "text/html"},
    {"get", "/openapi.json", "This description", kOpen, "", "OpenApi"},
    {"get", "/health", "Whether the model serves", kOpen, "", "Status"},
    {"get", "/ping", "Likewise", kOpen, "", "Status"},
    {"get", "/version", "The version of the program", kOpen, "", "Version"},
    {"get", "/metrics", "Metrics for Prometheus", kOpen, "", "", "text/plain"},
    {"get", "/v1/models", "The names of the model", kKeyed, "", "Models"},
    {"get", "/v1/models/{name}", "One of them", kKeyed, "", "Model"},
    {"post", "/v1/completions", "Texts that go on with prompts", kGenerates, "CompletionRequest",
     "Completion", kStream},
    {"post", "/v1/chat/completions", "Answers to a conversation", kGenerates, "ChatRequest",
     "ChatCompletion", kStream},
    {"post", "/v1/responses", "Likewise", kGenerates, "ResponseRequest", "Response", kStream},
    {"post", "/v1/messages", "Likewise", kGenerates, "AnthropicRequest", "AnthropicMessage",
     kStream},
    {"post", "/apply-template", "The prompt of a chat completion", kKeyed, "ChatRequest", "Prompt"},
    {"post", "/v1/responses/input_tokens", "Counts its tokens", kKeyed, "ResponseRequest",
     "InputTokens"},
    {"post", "/v1/messages/count_tokens", "Likewise", kKeyed, "AnthropicRequest", "InputTokens"},
    {"post", "/v1/embeddings", "Embeddings of texts", kGenerates, "EmbeddingRequest", "Embeddings"},
    {"post", "/v1/score", "Similarities of texts", kGenerates, "ScoreRequest", "Scores"},
    {"post", "/v1/rerank", "Documents by relevance", kGenerates, "RerankRequest", "Ranking"},
    {"post", "/v2/rerank", "Likewise", kGenerates, "RerankRequest", "Ranking"},
    {"post", "/rerank", "Likewise", kGenerates, "RerankRequest", "Ranking"},
    {"put", "/api", "Texts in Megatron-LM's form", kGenerates, "TextGenerationRequest",
     "TextGeneration"},
    {"post", "/api", "Likewise", kGenerates, "TextGenerationRequest", "TextGeneration"},
    {"post", "/tokenize", "The tokens of a text", kKeyed, "TokenizeRequest", "Tokens"},
    {"post", "/detokenize", "The text of tokens", kKeyed, "DetokenizeRequest", "Prompt"},
    {"get", "/tokenizer_info", "The tokenizer", kKeyed, "", "TokenizerInfo"}};

/// A body or an answer. `members` are words NAME MARK TYPE: the mark is ! for a member that must be
/// there, ? for one that may be null, and : for others. The type is one of JSON Schema, perhaps
/// with bounds, the name of another schema, or =A|B of texts; * behind it is a list, + one that is
/// not empty. A word +NAME stands for the members of another schema. Instead of words there may be
/// JSON.
struct Schema {
  std::string_view name, members;
  bool is_closed = false;  ///< other members are refused
};

constexpr Schema kSchemas[] = {
    {"Error", "error!ErrorDetails"},
    {"ErrorDetails", "message!string type!string param?string code?string"},
    {"Ids", R"({"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}})"},
    {"TextOrIds", R"({"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/Ids"}]})"},
    {"Prompts", R"({"anyOf": [{"$ref": "#/components/schemas/TextOrIds"}, {"type": "array",
      "minItems": 1, "items": {"$ref": "#/components/schemas/TextOrIds"}}]})"},
    {"Stop", R"({"anyOf": [{"type": ["string", "null"], "minLength": 1},
      {"type": "array", "items": {"type": "string", "minLength": 1}}]})"},
    {"Usage",
     "prompt_tokens!integer total_tokens!integer completion_tokens:integer "
     "prompt_tokens_details:object completion_tokens_details:object"},
    {"Sampling",
     "model?string max_tokens?integer[0,] min_tokens?integer[0,] temperature?number[0,] "
     "top_k?integer[-1,] top_p?number[0,1] min_p?number[0,1] typical_p?number[0,1] "
     "repetition_penalty?number[1e-30,1e30] presence_penalty?number[-2,2] seed?integer "
     "frequency_penalty?number[-2,2] logit_bias?object stop_token_ids?integer[0,]* "
     "allowed_token_ids?integer[0,]* termination_id?integer[0,] ignore_eos?boolean "
     "skip_special_tokens?boolean include_stop_str_in_output?boolean bad_words?string* "
     "truncate_prompt_tokens?integer[1,] "
     "stream?boolean stream_options?object return_token_ids?boolean "
     "priority?integer user:any metadata:any"},
    {"CompletionRequest",
     "prompt!Prompts +Sampling n?integer[1,128] best_of?integer[0,128] num_beams?integer[1,128] "
     "length_penalty?number[-30,30] logprobs?integer[0,] echo?boolean stop:Stop "
     "prompt_logprobs?integer[0,] "
     "guided_regex?string guided_choice?string* guided_json:any structured_outputs?object "
     "response_format?object return_routed_experts?boolean return_tokens_as_token_ids?boolean "
     "add_special_tokens?boolean",
     true},
    {"Completion",
     "id!string object!=text_completion created!integer model!string usage!Usage timings:object "
     "choices!CompletionChoice*"},
    {"CompletionChoice", "index!integer text!string logprobs?object finish_reason!=stop|length"},
    {"Content", R"({"anyOf": [{"type": ["string", "null"]}, {"type": "array", "items":
      {"type": "object", "required": ["type"]}}]})"},
    {"Message",
     "role!=system|developer|user|assistant|tool content:Content name?string "
     "reasoning_content?string tool_calls?object* tool_call_id?string"},
    {"ChatOptions",
     "+Sampling tools?object* tool_choice:any parallel_tool_calls?boolean "
     "chat_template_kwargs?object"},
    {"ChatRequest",
     "messages!Message+ +ChatOptions n?integer[1,128] stop:Stop logprobs?boolean "
     "max_completion_tokens?integer[0,] top_logprobs?integer[0,] reasoning_effort?string "
     "response_format?object"},
    {"ChatCompletion",
     "id!string object!=chat.completion created!integer model!string usage!Usage "
     "choices!ChatChoice*"},
    {"ChatChoice",
     "index!integer message!Message logprobs?object finish_reason!=stop|length|tool_calls"},
    {"ResponseInput", R"({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1,
      "items": {"type": "object"}}]})"},
    {"ResponseRequest",
     "input!ResponseInput +ChatOptions instructions?string text?object "
     "max_output_tokens?integer[0,] reasoning?object store?boolean background?boolean"},
    {"Response",
     "id!string object!=response status!=completed|incomplete model!string output!object* "
     "usage!object"},
    {"AnthropicRequest",
     "messages!AnthropicTurn+ +ChatOptions system:Content stop_sequences?string* thinking?object"},
    {"AnthropicTurn", "role!=user|assistant|system content!Content"},
    {"AnthropicMessage",
     "id!string type!=message role!=assistant model!string content!object* stop_reason!string "
     "stop_sequence?string usage!object"},
    {"InputTokens", "input_tokens!integer object:=response.input_tokens"},
    {"EmbeddingOptions", "model?string pooling?=mean|last priority?integer user?string"},
    {"EmbeddingRequest",
     "input!Prompts +EmbeddingOptions encoding_format?=float|base64 dimensions?integer "
     "normalize?boolean",
     true},
    {"Embeddings", "object!=list data!Embedding* model!string usage!Usage"},
    {"Embedding", "object!=embedding index!integer embedding!Vector"},
    {"Vector", R"({"anyOf": [{"type": "array", "items": {"type": "number"}},
      {"type": "string", "contentEncoding": "base64"}]})"},
    {"ScoreRequest",
     "+EmbeddingOptions text_1:Prompts text_2:Prompts queries:Prompts documents:Prompts", true},
    {"Scores", "id!string object!=list created!integer model!string data!Score* usage!Usage"},
    {"Score", "index!integer object!=score score!number[-1,1]"},
    {"RerankRequest",
     "query!string documents!Document+ +EmbeddingOptions top_n?integer[0,] "
     "return_documents?boolean",
     true},
    {"Document", R"({"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/Text"}]})"},
    {"Text", "text!string"},
    {"Ranking", "id!string model!string results!Rank* usage!Usage"},
    {"Rank", "index!integer relevance_score!number[-1,1] document:Text"},
    {"TextGenerationRequest",
     "prompts!string+ tokens_to_generate?integer[0,] logprobs?boolean temperature?number[0,] "
     "top_k?integer[0,] top_p?number[0,1] top_p_decay?number[0,0] top_p_bound?number[0,0] "
     "add_BOS?boolean stop_on_eol?boolean stop_on_double_eol?boolean "
     "prevent_newline_after_colon?boolean random_seed?integer[0,] no_log?boolean "
     "beam_width?integer[2,128] length_penalty?number[-30,30] stop_token?integer[0,]",
     true},
    {"TextGeneration",
     "text!string* segments!string** tokens!integer** logprobs?number** scores:number*"},
    {"TokenizeRequest",
     "prompt?string messages?Message+ add_special_tokens?boolean return_token_strs?boolean"},
    {"Tokens", "count!integer max_model_len!integer tokens!integer* token_strs?string*"},
    {"DetokenizeRequest", "tokens!integer[0,]*"},
    {"Prompt", "prompt!string"},
    {"TokenizerInfo",
     "tokenizer_class!string vocab_size!integer model_max_length!integer bos_token?string "
     "eos_token?string pad_token?string unk_token?string chat_template?string"},
    {"Status", "status!=ok"},
    {"Version", "version!string"},
    {"OpenApi", "openapi!string info!object paths!object"},
    {"Model", "id!string object!=model created!integer owned_by!string max_model_len!integer"},
    {"Models", "object!=list data!Model*"}};

struct ErrorStatus {
  int status;
  const char *description, *header;
  bool (*may_be)(const Operation&);
};

constexpr bool has_key(const Operation& one) { return one.access != kOpen; }
constexpr bool always(const Operation&) { return true; }

constexpr ErrorStatus kErrors[] = {
    {400, "The message names the member that is wrong", nullptr,
     [](const Operation& one) { return !one.body.empty(); }},
    {401, "The key is missing or wrong", "WWW-Authenticate", has_key},
    {404, "There is no such model", nullptr, has_key},
    {405, "The path takes other methods", "Allow", always},
    {413, "The body is too large", nullptr, always},
    {429, "The queue is full", "Retry-After",
     [](const Operation& one) { return one.access == kGenerates; }},
    {500, "The server failed: the message says why", nullptr, has_key},
    {503, "The model does not serve", "Retry-After",
     [](const Operation& one) { return has_key(one) || one.answer == "Status"; }}};

JsonText reference(const std::string& kind, std::string_view name) {
  return {{"$ref", "#/components/" + kind + "/" + std::string(name)}};
}

/// Returns the schema of a type. A reference is never null.
JsonText type_json(const std::string& type, bool is_nullable) {
  JsonText json = JsonText::object();
  const auto name = [is_nullable](const std::string& one) {
    return is_nullable ? JsonText::array({one, "null"}) : JsonText(one);
  };
  if (type.ends_with('*') || type.ends_with('+')) {
    json = {{"type", name("array")}, {"items", type_json(type.substr(0, type.size() - 1), false)}};
    if (type.ends_with('+')) json["minItems"] = 1;
  } else if (type.starts_with('=')) {
    std::istringstream values(type.substr(1));
    for (std::string value; std::getline(values, value, '|');) json["enum"].push_back(value);
    if (is_nullable) json["enum"].push_back(nullptr);
  } else if (std::isupper(static_cast<unsigned char>(type.front())) != 0) {
    json = reference("schemas", type);
  } else if (type != "any") {
    const std::size_t open = type.find('['), comma = type.find(',');
    json["type"] = name(type.substr(0, open));
    if (open != std::string::npos) {
      json["minimum"] = JsonText::verbatim(type.substr(open + 1, comma - open - 1));
      if (comma + 2 < type.size())
        json["maximum"] = JsonText::verbatim(type.substr(comma + 1, type.size() - comma - 2));
    }
  }
  return json;
}

void add_members(JsonText& to, const Schema& schema) {
  std::istringstream words{std::string(schema.members)};
  for (std::string word; words >> word;) {
    if (word.front() == '+') {
      add_members(to, *std::ranges::find(kSchemas, word.substr(1), &Schema::name));
      continue;
    }
    const std::size_t mark = word.find_first_of("!?:");
    const std::string name = word.substr(0, mark);
    to["properties"][name] = type_json(word.substr(mark + 1), word[mark] == '?');
    if (word[mark] == '!') to["required"].push_back(name);
  }
}

JsonText schema_json(const Schema& schema) {
  if (schema.members.front() == '{') return JsonText::verbatim(std::string(schema.members));
  JsonText json{{"type", "object"}};
  add_members(json, schema);
  if (schema.is_closed) json["additionalProperties"] = false;
  return json;
}

JsonText json_content(std::string_view schema) {
  return {{"application/json", {{"schema", reference("schemas", schema)}}}};
}

JsonText operation_json(const Operation& one) {
  JsonText json{{"summary", one.summary}}, answer{{"description", one.summary}};
  answer["content"] = one.answer.empty() ? JsonText::object() : json_content(one.answer);
  if (one.other_type == kStream)  // of events, whose data are objects of the API
    answer["content"][std::string(kStream)] = JsonText::object();
  else if (!one.other_type.empty())
    answer["content"][std::string(one.other_type)] = {{"schema", {{"type", "string"}}}};
  if (std::string_view(one.path).ends_with("{name}"))
    json["parameters"].push_back({{"name", "name"},
                                  {"in", "path"},
                                  {"required", true},
                                  {"schema", {{"type", "string"}, {"minLength", 1}}}});
  if (!one.body.empty())
    json["requestBody"] = {{"required", true}, {"content", json_content(one.body)}};
  json["responses"]["200"] = std::move(answer);
  for (const ErrorStatus& error : kErrors)
    if (error.may_be(one))
      json["responses"][std::to_string(error.status)] =
          reference("responses", std::to_string(error.status));
  if (!has_key(one)) json["security"] = JsonText::array();
  return json;
}

}  // namespace

std::string openapi_json() {
  JsonText paths, responses, schemas;
  for (const Operation& one : kOperations) paths[one.path][one.method] = operation_json(one);
  for (const ErrorStatus& error : kErrors) {
    JsonText& response = responses[std::to_string(error.status)];
    response = {{"description", error.description}, {"content", json_content("Error")}};
    if (error.header != nullptr)
      response["headers"][error.header] = {{"schema", {{"type", "string"}}}};
  }
  for (const Schema& schema : kSchemas) schemas[schema.name] = schema_json(schema);
  JsonText components{{"responses", std::move(responses)}, {"schemas", std::move(schemas)}};
  components["securitySchemes"] =
      JsonText::verbatim(R"({"bearer":{"type":"http","scheme":"bearer"},)"
                         R"("key":{"type":"apiKey","in":"header","name":"x-api-key"}})");
  JsonText all{{"openapi", "3.1.0"}, {"info", {{"title", "megatron serve"}, {"version", "1"}}}};
  all["security"] = JsonText::verbatim(R"([{},{"bearer":[]},{"key":[]}])");  // all may be asked
  all["paths"] = std::move(paths);
  all["components"] = std::move(components);
  return all.dump();
}

}  // namespace megatron
