// Embeddings, scores and reranking of texts whose hidden states are known. The cosine of the angle
// between (4, 3) and (0, 3) is 3/5.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/served_apis.h"

namespace megatron {
namespace {

using testing::HasSubstr;

class EmbeddingApis : public ServedApis {
 protected:
  EmbeddingApis() { serve(engine_); }

  nlohmann::json answer(const std::string& path, const std::string& body) {
    const RawAnswer raw = ask(path, body);
    EXPECT_EQ(raw.status, 200) << raw.body;
    return nlohmann::json::parse(raw.body, nullptr, /*allow_exceptions=*/false);
  }
  void expect_refusal(const std::string& path, const std::string& body, const std::string& why,
                      int status = 400) {
    const RawAnswer raw = ask(path, body);
    EXPECT_EQ(raw.status, status) << body;
    EXPECT_THAT(raw.body, HasSubstr(why)) << body;
  }

  EmbeddingEngine engine_;
};

TEST_F(EmbeddingApis, EmbedTextsAndIds) {
  using Vector = std::vector<float>;
  for (const char* input : {R"("7 4")", R"(["7 4"])", "[7, 4]", "[[7, 4]]"}) {
    const auto body = answer("/v1/embeddings", "{\"input\": " + std::string(input) + "}");
    EXPECT_EQ(body["data"].size(), 1u);
    EXPECT_EQ(body["data"][0]["embedding"].get<Vector>(), (Vector{0.8F, 0.6F})) << input;
    EXPECT_EQ(body["usage"]["prompt_tokens"], 2);
    EXPECT_EQ(body["model"], "small");
  }
  const auto two = answer("/v1/embeddings", R"({"input": ["4", "0"], "normalize": false})");
  EXPECT_EQ(two["data"][0]["embedding"].get<Vector>(), (Vector{4, 3}));
  EXPECT_EQ(two["data"][1]["embedding"].get<Vector>(), (Vector{0, 3}));
  EXPECT_EQ(two["data"][1]["index"], 1);
  const auto mean = answer("/v1/embeddings",
                           R"({"input": "0 8", "pooling": "mean", "normalize": false,
                               "dimensions": 2, "model": "small", "user": null})");
  EXPECT_EQ(mean["data"][0]["embedding"].get<Vector>(), (Vector{4, 3}));
}

// The bytes of 4 and 3 in IEEE 754 are 00 00 80 40 00 00 40 40.
TEST_F(EmbeddingApis, WriteBase64) {
  const auto body = answer("/v1/embeddings",
                           R"({"input": [4], "normalize": false, "encoding_format": "base64"})");
  EXPECT_EQ(body["data"][0]["embedding"], "AACAQAAAQEA=");
}

TEST_F(EmbeddingApis, ScorePairsByCosine) {
  const auto many = answer("/v1/score", R"({"text_1": "4", "text_2": ["0", "1 4"]})");
  EXPECT_NEAR(many["data"][0]["score"].get<double>(), 0.6, 1e-6);
  EXPECT_NEAR(many["data"][1]["score"].get<double>(), 1, 1e-6);
  EXPECT_EQ(many["usage"]["total_tokens"], 4);
  const auto pairs = answer("/v1/score", R"({"queries": ["4", "0"], "documents": ["0", "0"]})");
  EXPECT_NEAR(pairs["data"][0]["score"].get<double>(), 0.6, 1e-6);
  EXPECT_NEAR(pairs["data"][1]["score"].get<double>(), 1, 1e-6);
}

TEST_F(EmbeddingApis, RankDocuments) {
  const std::string head = R"({"query": "4", "documents": ["0", "4", {"text": "4 0"}])";
  for (const char* path : {"/v1/rerank", "/v2/rerank", "/rerank"}) {
    const auto all = answer(path, head + "}")["results"];
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0]["index"], 1);
    EXPECT_NEAR(all[0]["relevance_score"].get<double>(), 1, 1e-6);
    EXPECT_EQ(all[1]["index"], 0) << "the first of two with the same score";
    EXPECT_NEAR(all[1]["relevance_score"].get<double>(), 0.6, 1e-6);
    EXPECT_EQ(all[2]["document"]["text"], "4 0");
  }
  const auto best = answer("/rerank", head + R"(, "top_n": 1, "return_documents": false})");
  EXPECT_EQ(best["results"].size(), 1u);
  EXPECT_FALSE(best["results"][0].contains("document"));
}

TEST_F(EmbeddingApis, NameWhatIsWrong) {
  expect_refusal("/v1/embeddings", R"({"input": []})", "'input': an empty list");
  expect_refusal("/v1/embeddings", R"({"input": 4})", "'input' must be a string");
  expect_refusal("/v1/embeddings", R"({"input": [99]})", "token id 99");
  expect_refusal("/v1/embeddings", R"({"input": [4], "dimensions": 1})", "have 2 numbers");
  expect_refusal("/v1/embeddings", R"({"input": [4], "encoding_format": "hex"})", "'hex'");
  expect_refusal("/v1/embeddings", R"({"input": [4], "pooling": "cls"})", "'cls'");
  expect_refusal("/v1/embeddings", R"({"input": [4], "size": 1})", "'size': is not known here");
  expect_refusal("/v1/embeddings", R"({"input": [4], "model": "large"})", "'large'", 404);
  expect_refusal("/v1/embeddings", "{\"input\": [4" + std::string(64 * 2, ' ') + "]", "not valid");
  std::string long_one = "4";
  for (int i = 0; i < 64; ++i) long_one += " 4";
  expect_refusal("/v1/embeddings", "{\"input\": \"" + long_one + "\"}", "context of 64 tokens");
  expect_refusal("/v1/score", R"({"text_1": ["1", "2"], "text_2": ["1", "2", "3"]})",
                 "2 and 3 texts");
  expect_refusal("/v1/score", R"({"text_1": "1", "queries": "1", "text_2": "1"})", "mean the same");
  expect_refusal("/v1/score", R"({"text_1": "1"})", "'text_2' is missing");
  expect_refusal("/rerank", R"({"query": "1", "documents": []})", "'documents': an empty list");
  expect_refusal("/rerank", R"({"query": "1", "documents": ["1"], "top_n": -1})", "'top_n'");
  expect_refusal("/rerank", R"({"query": "1", "documents": [{"title": "1"}]})", "text");
}

}  // namespace
}  // namespace megatron
