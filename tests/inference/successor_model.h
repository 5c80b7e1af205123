// A small language model for tests: the logits of a token depend only on it and its position.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/one_hot.h>

#include <stdexcept>

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

}  // namespace megatron
