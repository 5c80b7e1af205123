// The APIs of a model behind HTTP, and an engine without a model that embeds.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatron/config/tokenizer_config.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/inference/request_server.h"
#include "megatron/server/api/api_routes.h"
#include "megatron/server/api/served_model.h"
#include "megatron/server/router.h"
#include "server/raw_client.h"

namespace megatron {

/// Says at once that requests have ended. The hidden state of a token is (its id, 3).
class EmbeddingEngine final : public RequestServer {
 public:
  EmbeddingEngine() : RequestServer({}) { start(); }
  ~EmbeddingEngine() override { stop(); }

 private:
  void apply(ServingCommand command) override {
    const TextRequest& text = command.text;
    Generation result;
    if (text.pooling != Pooling::none) {
      const std::int64_t size = std::ssize(text.prompt);
      Pooler pooler(text.pooling, size);
      std::vector<float> rows;
      for (std::int64_t i = size - pooler.num_rows(0, size); i < size; ++i)
        rows.insert(rows.end(), {static_cast<float>(text.prompt.at(std::size_t(i))), 3});
      pooler.add(at::tensor(rows).view({-1, 2}));
      result.embedding = pooler.embedding(text.normalizes);
    }
    tell({.update = {.request = command.request, .finished = std::move(result), .is_last = true}});
  }
  bool step() override { return false; }
};

class ServedApis : public testing::Test {
 protected:
  static constexpr std::int64_t kVocabSize = 20;

  ServedApis() {
    TokenizerConfig config;
    config.tokenizer_type = "NullTokenizer";  // whose texts are ids
    config.vocab_size = kVocabSize;
    tokenizer_.tokenizer = make_tokenizer(config);
  }

  void serve(RequestServer& engine) {
    model_ = std::make_unique<ServedModel>(ServedModel{.name = "small",
                                                       .tokenizer = tokenizer_,
                                                       .engine = &engine,
                                                       .max_model_len = 64,
                                                       .vocab_size = kVocabSize,
                                                       .embedding_size = 2});
    add_api_routes(router_, *model_);
    router_.set_max_open(64);
    router_.set_state(HttpRouter::State::ready);
    server_ = std::make_unique<HttpServer>(HttpOptions{},
                                           [this](const HttpRequest& request, HttpReply reply) {
                                             router_.answer(request, std::move(reply));
                                           });
  }

  RawAnswer ask(const std::string& path, const std::string& body,
                const std::string& method = "POST") {
    RawClient client(server_->port());
    client.send(method + post(path, body).substr(4));
    return client.answer();
  }

  LoadedTokenizer tokenizer_;
  HttpRouter router_{{.logs_access = false}};
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace megatron
