// Embeddings of models in Hugging Face folders, for tests/parity/embeddings_parity.py.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "megatron/inference/engine.h"
#include "megatron/inference/load_model.h"

namespace megatron {
namespace {

/// Reads lines {"folder", "prompts": [[ids…]…]}, and writes for each a line {"mean": [[h]…],
/// "last": [[h]…]} with what one engine says of the prompts together, in short passes.
TEST(Embeddings, OfHuggingFaceFolders) {
  const char* const path = std::getenv("MEGATRON_EMBEDDINGS");
  if (path == nullptr) GTEST_SKIP() << "MEGATRON_EMBEDDINGS names no file";
  std::ifstream in(path);
  std::ofstream out(std::string(path) + ".out");
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json model = nlohmann::json::parse(line);
    const LoadedModel loaded =
        load_model(model.at("folder").get<std::string>(), std::nullopt, {.type = c10::kFloat});
    Engine engine(loaded.runner, {.scheduler = {.max_running = 8, .max_step_tokens = 50}});
    std::vector<std::pair<const char*, std::vector<float>>> embeddings;
    for (const auto& prompt : model.at("prompts")) {
      for (const auto& [name, pooling] :
           {std::pair{"mean", Pooling::mean}, std::pair{"last", Pooling::last}}) {
        engine.add_request({.prompt = prompt.get<std::vector<std::int64_t>>(),
                            .pooling = pooling,
                            .id = std::ssize(embeddings)});
        embeddings.push_back({name, {}});
      }
    }
    while (!engine.is_idle()) {
      for (const Update& update : engine.step()) {
        if (update.error) std::rethrow_exception(update.error);
        embeddings.at(static_cast<std::size_t>(update.request)).second =
            update.finished.value().embedding;
      }
    }
    nlohmann::json result;
    for (const auto& [name, embedding] : embeddings) result[name].push_back(embedding);
    out << result.dump() << std::endl;
  }
  EXPECT_TRUE(out.good());
}

}  // namespace
}  // namespace megatron
