// Embeddings of texts, and scores of pairs of texts from them.
#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/inference/completions/completion_request.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/server/api/api_routes.h"
#include "megatron/server/api/json_handler.h"
#include "megatron/server/api/served_model.h"
#include "megatron/server/generation_job.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxTexts = 2048;  // OpenAI's limit of a request

using Embedding = std::vector<float>;
/// Returns the members of an answer beside "model" and "usage".
using MakeAnswer = std::function<JsonText(const std::vector<Embedding>& embeddings)>;

static_assert(std::endian::native == std::endian::little);

/// Returns the float32 values in base64, with the lowest byte of each first.
JsonText base64_of(const Embedding& values) {
  const std::size_t size = values.size() * sizeof(float);
  std::string text(4 * ((size + 2) / 3) + 1, '\0');  // the function writes a zero at the end
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                  reinterpret_cast<const unsigned char*>(values.data()), static_cast<int>(size));
  text.pop_back();
  return text;
}

/// Returns the cosine similarity of vectors of length 1.
double similarity(const Embedding& a, const Embedding& b) {
  const double sum =
      std::inner_product(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                         [](float x, float y) { return static_cast<double>(x) * y; });
  return std::clamp(sum, -1.0, 1.0);
}

Pooling read_pooling(const JsonCursor& value) {
  const std::string name = value.text();
  if (name != "mean" && name != "last")
    throw UserError({value.name(), "'" + name + "' is not known", "give mean or last"});
  return name == "mean" ? Pooling::mean : Pooling::last;
}

std::vector<Embedding> embeddings_of(std::vector<PromptResult> results) {
  std::vector<Embedding> embeddings;
  for (PromptResult& result : results) {
    Embedding& own = embeddings.emplace_back(std::move(result.texts.front().embedding));
    if (own.empty())
      throw RefusedRequest(
          503, "",
          {"the time of the request was over", "the server ends a request after --request-timeout",
           "send fewer texts, or try again later"});
    if (!std::ranges::all_of(own, [](float value) { return std::isfinite(value); }))
      throw std::runtime_error("an embedding is not finite");
  }
  return embeddings;
}

/// Computes the embeddings of texts, and answers a request with what is made of them. The body also
/// says whose embeddings, and how they are pooled.
void start_embeddings(const ServedModel& model, const JsonCursor& body,
                      const std::vector<CompletionPrompt>& texts, bool normalizes,
                      const HttpReply& reply, MakeAnswer make_answer) {
  const auto name = body.find_given("model"), pooling = body.find_given("pooling"),
             priority = body.find_given("priority"), user = body.find_given("user");
  const std::string model_name = name ? name->text() : model.name;
  check_model_name(model, model_name);
  if (user) user->text();
  if (texts.size() > kMaxTexts)
    throw UserError({body.place(), std::to_string(texts.size()) + " texts",
                     "give at most " + std::to_string(kMaxTexts)});
  check_sizes(model, std::ssize(texts), texts);
  std::vector<std::vector<std::int64_t>> prompts;
  for (const CompletionPrompt& text : texts)
    prompts.push_back(completion_ids(text, *model.tokenizer.tokenizer, "a text"));
  start_generation(
      model, std::move(prompts), {.max_new_tokens = 0},
      {.priority = priority ? priority->integer() : 0,
       .pooling = pooling ? read_pooling(*pooling) : model.pooling,
       .normalizes = normalizes},
      reply,
      {.on_end =
           [reply = reply, model_name, make_answer = std::move(make_answer)](
               std::vector<PromptResult> results, const JobStats& stats) mutable {
             JsonText answer = make_answer(embeddings_of(std::move(results)));
             answer["model"] = model_name;
             answer["usage"] = {{"prompt_tokens", stats.usage.prompt_tokens},
                                {"total_tokens", stats.usage.prompt_tokens}};
             reply.send(200, answer.dump());
           },
       .on_error = [reply = reply](
                       const std::exception_ptr& error) mutable { reply_error(reply, error); }});
}

void embed(const ServedModel& model, const JsonCursor& body, const HttpReply& reply) {
  body.allow_only({"model", "input", "encoding_format", "dimensions", "normalize", "pooling",
                   "priority", "user"});
  const auto format = body.find_given("encoding_format"), size = body.find_given("dimensions"),
             normalize = body.find_given("normalize");
  const std::string form = format ? format->text() : "float";
  if (form != "float" && form != "base64")
    throw UserError({format->name(), "'" + form + "' is not known", "give float or base64"});
  if (size && size->integer() != model.embedding_size)
    throw UserError({size->name(),
                     "embeddings have " + std::to_string(model.embedding_size) +
                         " numbers, and the model is not known to allow fewer",
                     "leave it out"});
  start_embeddings(
      model, body, completion_prompts(body["input"]), normalize ? normalize->boolean() : true,
      reply, [is_text = form == "base64"](const auto& embeddings) {
        JsonText data = JsonText::array();
        for (std::size_t i = 0; i < embeddings.size(); ++i)
          data.push_back(
              {{"object", "embedding"},
               {"index", i},
               {"embedding", is_text ? base64_of(embeddings[i]) : JsonText(embeddings[i])}});
        return JsonText{{"object", "list"}, {"data", std::move(data)}};
      });
}

/// Returns the member that is given, of two with the same meaning.
JsonCursor one_of(const JsonCursor& body, const std::string& name, const std::string& other) {
  const auto first = body.find_given(name), second = body.find_given(other);
  if (first && second)
    throw UserError({first->name() + " and '" + other + "'", "mean the same", "give one of them"});
  return second ? *second : body[name];
}

void score(const ServedModel& model, const JsonCursor& body, const HttpReply& reply) {
  body.allow_only(
      {"model", "text_1", "text_2", "queries", "documents", "pooling", "priority", "user"});
  std::vector<CompletionPrompt> texts = completion_prompts(one_of(body, "text_1", "queries"));
  const auto others = completion_prompts(one_of(body, "text_2", "documents"));
  const std::size_t count = texts.size();
  if (count != 1 && count != others.size())
    throw UserError({body.place() + ": fields 'text_1' and 'text_2'",
                     std::to_string(count) + " and " + std::to_string(others.size()) + " texts",
                     "give one text and any number of others, or as many of each"});
  texts.insert(texts.end(), others.begin(), others.end());
  start_embeddings(model, body, texts, /*normalizes=*/true, reply, [count](const auto& embeddings) {
    JsonText data = JsonText::array();
    for (std::size_t i = count; i < embeddings.size(); ++i)
      data.push_back(
          {{"index", i - count},
           {"object", "score"},
           {"score", similarity(embeddings[count == 1 ? 0 : i - count], embeddings[i])}});
    return JsonText{{"id", random_id("score-")},
                    {"object", "list"},
                    {"created", unix_time()},
                    {"data", std::move(data)}};
  });
}

void rerank(const ServedModel& model, const JsonCursor& body, const HttpReply& reply) {
  body.allow_only(
      {"model", "query", "documents", "top_n", "return_documents", "pooling", "priority", "user"});
  std::vector<CompletionPrompt> texts{body["query"].text()};
  for (const JsonCursor& document : body["documents"].elements())
    texts.emplace_back(document->is_object() ? document["text"].text() : document.text());
  if (texts.size() == 1)
    throw UserError({body["documents"].name(), "an empty list", "give a document"});
  const auto top_n = body.find_given("top_n"), returns = body.find_given("return_documents");
  const std::int64_t most = top_n ? top_n->integer() : 0;  // 0: all
  if (most < 0) throw UserError({top_n->name(), std::to_string(most), "give at least 0"});
  const bool has_documents = returns ? returns->boolean() : true;
  const auto rank = [texts, most, has_documents](const auto& embeddings) {
    std::vector<std::pair<double, std::size_t>> ranking;
    for (std::size_t i = 1; i < embeddings.size(); ++i)
      ranking.emplace_back(similarity(embeddings[0], embeddings[i]), i);
    std::ranges::stable_sort(ranking, std::greater<>(), [](const auto& one) { return one.first; });
    if (most > 0 && most < std::ssize(ranking)) ranking.resize(static_cast<std::size_t>(most));
    JsonText results = JsonText::array();
    for (const auto& [relevance, place] : ranking) {
      JsonText result = {{"index", place - 1}, {"relevance_score", relevance}};
      if (has_documents) result["document"] = {{"text", std::get<std::string>(texts[place])}};
      results.push_back(std::move(result));
    }
    return JsonText{{"id", random_id("rerank-")}, {"results", std::move(results)}};
  };
  start_embeddings(model, body, texts, /*normalizes=*/true, reply, rank);
}

}  // namespace

std::vector<ApiRoute> embedding_routes(const ServedModel& model) {
  using Answer = void (*)(const ServedModel&, const JsonCursor&, const HttpReply&);
  const auto route = [&model](const char* path, Answer answer) -> ApiRoute {
    return {"POST", path, [&model, answer](const HttpRequest& request, HttpReply reply) {
              answer_errors(reply, [&] { answer(model, body_of(request), reply); });
            }};
  };
  return {route("/v1/embeddings", embed), route("/v1/score", score), route("/v1/rerank", rerank),
          route("/rerank", rerank), route("/v2/rerank", rerank)};
}

}  // namespace megatron
