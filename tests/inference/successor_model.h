// A small language model for tests: the logits of a token depend only on it and its position.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/one_hot.h>

#include <memory>
#include <stdexcept>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/language_model.h"

namespace megatron {

/// Predicts (last token + 1) mod vocabulary with logit `sharpness`, every other token with 0.
class SuccessorModel : public LanguageModel {
 public:
  explicit SuccessorModel(std::int64_t vocab_size, float sharpness = 20)
      : LanguageModel(nullptr, ""), sharpness_(sharpness) {
    config_.vocab_size = vocab_size;
    config_.position_embedding_type = PositionEmbedding::none;
  }
  TransformerConfig& mutable_config() { return config_; }
  const TransformerConfig& config() const override { return config_; }
  StageOutput forward_chunk(std::int64_t, const Microbatch&, const Activations&, bool) override {
    throw std::logic_error("SuccessorModel does not train");
  }
  at::Tensor logits(const at::Tensor& tokens, std::int64_t start, KvCache*,
                    bool last_token_only) override {
    calls.push_back({start, tokens.size(1)});
    const at::Tensor last = last_token_only ? tokens.slice(1, tokens.size(1) - 1) : tokens;
    return at::one_hot(last.add(1).remainder(config_.vocab_size), config_.vocab_size)
        .to(c10::kFloat)
        .mul(sharpness_);
  }
  struct Call {
    std::int64_t start, length;
    bool operator==(const Call&) const = default;
  };
  std::vector<Call> calls;

 private:
  TransformerConfig config_;
  float sharpness_;
};

/// Predicts the sum of all tokens so far, mod vocabulary: what came before counts, and reaches a
/// later call through the cache alone.
class RunningSumModel : public SuccessorModel {
 public:
  using SuccessorModel::SuccessorModel;
  at::Tensor logits(const at::Tensor& tokens, std::int64_t start, KvCache* kv_cache,
                    bool last_token_only) override {
    at::Tensor sums = tokens.cumsum(1);
    if (kv_cache != nullptr) {
      if (kv_cache->layers.empty()) kv_cache->layers.push_back(std::make_unique<Sum>());
      Sum& before = dynamic_cast<Sum&>(*kv_cache->layers[0]);
      if (before.num_tokens != start) throw std::logic_error("a cache of other tokens");
      sums = sums.add(before.value);
      before = Sum(sums[0][-1].item<std::int64_t>(), start + tokens.size(1));
    }
    return SuccessorModel::logits(sums.sub(1), start, kv_cache, last_token_only);
  }

 private:
  struct Sum : LayerCache {
    Sum() = default;
    Sum(std::int64_t value, std::int64_t num_tokens) : value(value), num_tokens(num_tokens) {}
    std::int64_t value = 0, num_tokens = 0;
  };
};

}  // namespace megatron
