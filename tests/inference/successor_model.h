// A small language model for tests: the logits of a token depend only on it and its position.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/one_hot.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/model.h"

namespace megatron {

/// Predicts (last token + 1) mod vocabulary with logit `sharpness`, every other token with 0.
class SuccessorModel : public Model {
 public:
  explicit SuccessorModel(std::int64_t vocab_size, float sharpness = 20)
      : Model(nullptr, ""), sharpness_(sharpness) {
    config_.vocab_size = vocab_size;
    config_.position_embedding_type = PositionEmbedding::none;
  }
  TransformerConfig& mutable_config() { return config_; }
  const TransformerConfig& config() const override { return config_; }
  /// Returns logits, of all rows or of the last of each sequence.
  StageOutput forward_chunk(std::int64_t, const Pass& pass, const Activations&) override {
    const at::Tensor positions = position_ids(pass).view({-1});
    for (std::int64_t i = 0, end = 0; i < positions.numel(); i = end) {
      end = i + 1;
      const auto at = [&](std::int64_t row) { return positions[row].item<std::int64_t>(); };
      while (end < positions.numel() && at(end) == at(end - 1) + 1) ++end;
      calls.push_back({at(i), end - i});
    }
    at::Tensor rows = predictions(pass).t();
    if (pass.wants == Wants::last_logits) rows = last_rows(rows, pass, pass.num_logits);
    const at::Tensor logits = at::one_hot(rows.t(), config_.vocab_size).to(c10::kFloat);
    return {.result = logits.mul(sharpness_).reshape(result_shape(pass))};
  }
  struct Call {
    std::int64_t start, length;
    bool operator==(const Call&) const = default;
  };
  std::vector<Call> calls;  ///< one for each sequence of a pass

 protected:
  /// Returns the most likely next token of every token: int64 [b, s].
  virtual at::Tensor predictions(const Pass& pass) {
    return pass.microbatch.at("tokens").add(1).remainder(config_.vocab_size);
  }

 private:
  TransformerConfig config_;
  float sharpness_;
};

/// The same with an encoder: the decoder's token says what is next, whatever the encoder reads.
class AnsweringModel : public SuccessorModel {
 public:
  using SuccessorModel::SuccessorModel;
  bool has_encoder() const override { return true; }
};

/// Predicts the sum of all tokens so far, mod vocabulary: what came before counts, and reaches a
/// later call through the cache alone.
class RunningSumModel : public SuccessorModel {
 public:
  using SuccessorModel::SuccessorModel;
  bool keeps_states() const override { return true; }

 protected:
  at::Tensor predictions(const Pass& pass) override {
    const at::Tensor& tokens = pass.microbatch.at("tokens");
    std::vector<std::int64_t> begins{0, tokens.size(1)};
    if (pass.microbatch.packed) begins = pass.microbatch.packed->cu_seqlens;
    std::vector<at::Tensor> all;
    for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
      at::Tensor& sums = all.emplace_back(tokens.slice(1, begins[i], begins[i + 1]).cumsum(1));
      if (pass.caches == nullptr) continue;
      SequenceCache& cache = *(*pass.caches)[i];
      Sum& before = cache.of_layer<Sum>("sums");
      if (before.num_tokens != cache.length) throw std::logic_error("a cache of other tokens");
      sums = sums.add(before.value);
      before.value = sums[0][-1].item<std::int64_t>();
      before.num_tokens += sums.size(1);
    }
    return at::cat(all, 1).remainder(config().vocab_size);
  }

 private:
  struct Sum : LayerCache {
    std::int64_t value = 0, num_tokens = 0;
  };
};

}  // namespace megatron
