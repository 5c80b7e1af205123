// A toy family with a residual of two streams (as hyper-connections, Zhu et al. 2024). Layer 1
// publishes a tensor that layer 3 reads, and layer 2 reads the token ids.
// s positions, b samples, n streams, h hidden channels.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/models/gpt_model.h"
#include "megatron/models/model_family.h"
#include "megatron/nn/embedding.h"
#include "megatron/nn/layer_spec.h"
#include "megatron/nn/linear.h"
#include "megatron/nn/norm.h"
#include "megatron/ops/tensor_parallel_mappings.h"
#include "megatron/parallel/rank.h"

namespace megatron {

inline constexpr std::int64_t kStreams = 2, kMemoWidth = 5;

/// What layer 3 does with the tensor "memo" of layer 1.
enum class MemoReader { reads, multiplies_by_zero, ignores, absent };

struct TwoStreamOptions {
  MemoReader reader = MemoReader::reads;
  std::int64_t declared_width = kMemoWidth;  ///< of the tensor, as its BlockSpec says
};

/// Returns a weight that every rank of tp holds. With sequence parallelism a rank has the gradient
/// of its own rows.
inline ParameterSpec whole_weight(Shape shape, const Rank& rank) {
  return {.sharding = Sharding::replicated(std::move(shape), rank.sequence_parallel),
          .init = Init::normal(0.5),
          .tags = {}};
}

/// Returns Σᵢ weightsᵢ · streamᵢ, [s, b, h] of [s, b, n, h].
inline at::Tensor mixed_streams(const at::Tensor& streams_sbnh, Parameter& weights) {
  return (streams_sbnh * tracked(weights).view({kStreams, 1})).sum(2);
}

/// A block of GPT on a learned mixture of the streams. Each gets a learned share of its output.
class StreamBlock : public Sublayer {
 public:
  struct Options {
    decltype(BlockSpec::make) make;  ///< makes the block of GPT
    bool publishes = false, reads_tokens = false;
    std::optional<double> memo_factor = {};  ///< of what it reads; none: it reads nothing
  };
  StreamBlock(Module* parent, std::string_view name, const LayerArguments& arguments,
              const Options& options)
      : Sublayer(parent, name, {}),
        options_(options),
        tp_(arguments.rank.tp),
        read_(declare("read", whole_weight({kStreams}, arguments.rank), tp_)),
        write_(declare("write", whole_weight({kStreams}, arguments.rank), tp_)),
        block_(options.make(this, "block", arguments)) {
    const TransformerConfig& config = arguments.config;
    const std::int64_t h = config.hidden_size;
    if (options.reads_tokens)
      token_table_ = &declare("token_table", word_embedding_spec(config, 8), tp_);
    if (options.publishes)
      memo_in_ = &declare("memo_in", whole_weight({kMemoWidth, h}, arguments.rank), tp_);
    if (options.memo_factor)
      memo_out_ = &declare("memo_out", whole_weight({h, kMemoWidth}, arguments.rank), tp_);
  }
  NormWeights input_norm() const override { return {}; }

  at::Tensor forward(const at::Tensor& streams_sbnh, const ForwardContext& context) override {
    at::Tensor x = mixed_streams(streams_sbnh, read_);
    if (token_table_ != nullptr) x = x + token_rows(context);
    if (memo_out_ != nullptr)
      x = x + linear(context.published("memo"), *memo_out_, nullptr) * *options_.memo_factor;
    if (memo_in_ != nullptr) context.publish("memo", linear(x, *memo_in_, nullptr));
    const NormWeights own = block_->input_norm();
    const at::Tensor out = block_->forward(norm(x, *own.weight, own.bias, own.options), context);
    return out.unsqueeze(2) * tracked(write_).view({kStreams, 1});
  }

 private:
  /// Returns the rows of a table whose rows the ranks of tp divide.
  at::Tensor token_rows(const ForwardContext& context) const {
    const at::Tensor rows = embedding_lookup(context.tokens.t(), *token_table_);
    return context.sequence_parallel
               ? reduce_scatter_to_sequence_parallel_region(rows, tp_, "token_table")
               : reduce_from_tensor_parallel_region(rows, tp_, "token_table");
  }

  const Options options_;
  const Axis& tp_;
  Parameter &read_, &write_;
  Parameter *token_table_ = nullptr, *memo_in_ = nullptr, *memo_out_ = nullptr;
  std::unique_ptr<Sublayer> block_;
};

/// Embeds tokens as GPT does, and begins the second stream with half of the first.
class StreamInput : public LanguageModelEmbedding {
 public:
  using LanguageModelEmbedding::LanguageModelEmbedding;
  at::Tensor forward(const Microbatch& microbatch, const at::Tensor& position_ids,
                     const ForwardContext& context) const override {
    const at::Tensor rows = LanguageModelEmbedding::forward(microbatch, position_ids, context);
    return at::stack({rows, rows * 0.5}, 2);
  }
};

/// GPT's head on a learned mixture of the streams.
class StreamHead : public Head {
 public:
  explicit StreamHead(const PartArguments& arguments)
      : streams_(arguments.parent, "streams", whole_weight({kStreams}, arguments.rank),
                 arguments.rank.tp),
        head_(make_language_model_head(arguments)) {}
  StepOutput loss(const at::Tensor& streams_sbnh, const Microbatch& microbatch,
                  const ForwardContext& context, const LossGradient& gradient) const override {
    return head_->loss(mixed_streams(streams_sbnh, streams_.parameter), microbatch, context,
                       gradient);
  }
  at::Tensor logits(const at::Tensor& streams_sbnh) const override {
    return head_->logits(mixed_streams(streams_sbnh, streams_.parameter));
  }

 private:
  ParameterModule streams_;
  std::unique_ptr<Head> head_;
};

inline std::vector<BlockSpec> stream_blocks(const LayerKind& kind, std::int64_t layer,
                                            const TwoStreamOptions& options) {
  std::vector<BlockSpec> blocks = decoder_blocks(kind, layer);
  for (BlockSpec& block : blocks) {
    StreamBlock::Options own{.make = block.make};
    const bool is_attention = block.name == "self_attention";
    if (layer == 1 && !is_attention) {
      own.publishes = true;
      block.publishes = {{"memo", {options.declared_width}}};
    }
    own.reads_tokens = layer == 2 && is_attention;
    if (layer == 3 && is_attention && options.reader != MemoReader::absent) {
      block.reads = {"memo"};
      if (options.reader != MemoReader::ignores)
        own.memo_factor = options.reader == MemoReader::reads ? 1 : 0;
    }
    block.make = [own](Module* parent, std::string_view name, const LayerArguments& arguments) {
      return std::make_unique<StreamBlock>(parent, name, arguments, own);
    };
  }
  return blocks;
}

inline ModelFamily two_stream_family(const TwoStreamOptions& options = {}) {
  ModelFamily family;
  family.name = "two-streams";
  family.title = "TwoStreams";
  family.spec = [options](const TransformerConfig& config) {
    StackSpec stack;
    stack.config = config;
    stack.num_streams = kStreams;
    stack.layers.blocks = [options](const LayerKind& kind, std::int64_t layer) {
      return stream_blocks(kind, layer, options);
    };
    stack.input = [](const PartArguments& arguments) {
      return std::make_unique<StreamInput>(
          arguments.parent, arguments.config, arguments.rank,
          word_embedding_spec(arguments.config, arguments.vocab_pad_multiple));
    };
    ModelSpec spec;
    spec.stacks.push_back(std::move(stack));
    spec.heads.emplace_back(
        [](const PartArguments& arguments) { return std::make_unique<StreamHead>(arguments); });
    return spec;
  };
  return family;
}

}  // namespace megatron
