// Runs a step on ATen's meta device, whose tensors have shapes but no data. Reading a value on the
// host throws, mixing in a CPU tensor throws, and a CPU kernel would dereference a null pointer. A
// step that passes can be queued on any device without waiting for it. Operators with a kernel for
// the meta device (ops/operator.h) only allocate there.
#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <array>

#include "megatron/config/optimizer_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/step/train_step.h"
#include "support/gpt_model.h"
#include "support/tiny_gpt.h"
#include "support/train_step.h"

namespace {

at::Tensor index_select(const at::Tensor& x, std::int64_t dim, const at::Tensor& index) {
  auto shape = x.sizes().vec();
  shape[static_cast<std::size_t>(dim)] = index.numel();
  return at::empty(shape, x.options());
}

at::Tensor& resize(at::Tensor& out, at::IntArrayRef shape) {
  at::native::resize_output(out, shape);
  return out;
}

at::Tensor& unary_out(const at::Tensor& x, at::Tensor& out) { return resize(out, x.sizes()); }

at::Tensor& binary_out(const at::Tensor& x, const at::Tensor& y, at::Tensor& out) {
  return resize(out, at::infer_size(x.sizes(), y.sizes()));
}

at::Tensor where(const at::Tensor& condition, const at::Tensor& x, const at::Tensor& y) {
  return at::empty(at::infer_size(condition.sizes(), at::infer_size(x.sizes(), y.sizes())),
                   (x.dim() > 0 ? x : y).options());
}

at::Tensor& where_out(const at::Tensor& condition, const at::Tensor& x, const at::Tensor& y,
                      at::Tensor& out) {
  return resize(out, at::infer_size(condition.sizes(), at::infer_size(x.sizes(), y.sizes())));
}

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Three layer_norm(const at::Tensor& x, at::IntArrayRef, const std::optional<at::Tensor>&,
                 const std::optional<at::Tensor>&, double) {
  auto shape = x.sizes().vec();
  shape.back() = 1;
  const at::Tensor statistic = at::empty(shape, x.options().dtype(at::kFloat));
  return {at::empty_like(x), statistic, statistic.clone()};
}

Three layer_norm_backward(const at::Tensor& /*dy*/, const at::Tensor& x, at::IntArrayRef,
                          const at::Tensor&, const at::Tensor&,
                          const std::optional<at::Tensor>& weight,
                          const std::optional<at::Tensor>& bias, std::array<bool, 3>) {
  return {at::empty_like(x), at::empty_like(*weight), bias ? at::empty_like(*bias) : at::Tensor()};
}

at::Tensor& addmm_out(const at::Tensor& sum, const at::Tensor& /*a*/, const at::Tensor& /*b*/,
                      at::ScalarType, const at::Scalar&, const at::Scalar&, at::Tensor& out) {
  return resize(out, sum.sizes());
}

/// Operators whose shape functions exist only in ATen's Python code.
TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("index_select", index_select);
  library.impl("abs.out", unary_out);
  library.impl("logical_not.out", unary_out);
  library.impl("logical_or.out", binary_out);
  library.impl("logical_and.out", binary_out);
  library.impl("addmm.dtype_out", addmm_out);
  library.impl("where.self", where);
  library.impl("where.self_out", where_out);
  library.impl("native_layer_norm", layer_norm);
  library.impl("native_layer_norm_backward", layer_norm_backward);
}

}  // namespace

namespace megatron {
namespace {

constexpr std::int64_t kSamples = 2, kSequence = 8;

struct Variant {
  const char* name;
  void (*change)(TransformerConfig&);
  bool documents = false;
  bool shared_positions = true;
};

void llama(TransformerConfig& config) {
  make_llama(config);
  config.hidden_dropout = config.attention_dropout = 0;
}

const Variant kVariants[] = {
    {"gpt2", [](TransformerConfig&) {}},
    {"llama", llama},
    {"llama, each sample with positions of its own", llama, /*documents=*/false,
     /*shared_positions=*/false},
    {"llama, documents kept apart", llama, /*documents=*/true},
    {"qwen3",
     [](TransformerConfig& config) {
       llama(config);
       config.qk_layernorm = true;
     }},
    {"windows and ALiBi",
     [](TransformerConfig& config) {
       config.position_embedding_type = PositionEmbedding::alibi;
       config.window_size = {3, 0};
     }},
    {"post-norm, layernorm-1p",
     [](TransformerConfig& config) {
       config.norm_placement = NormPlacement::post;
       config.apply_layernorm_1p = true;
     }},
    {"fp32 residual, softmax in fp32",
     [](TransformerConfig& config) {
       llama(config);
       config.hidden_dropout = config.attention_dropout = 0.1;
       config.fp32_residual_connection = config.attention_softmax_in_fp32 = true;
     }},
};

struct Precision {
  const char* name;
  c10::ScalarType weights, gradients;
};
const Precision kPrecisions[] = {{"fp32", c10::kFloat, c10::kFloat},
                                 {"bf16", c10::kBFloat16, c10::kFloat},
                                 {"fp16", c10::kHalf, c10::kFloat}};

Microbatch meta_batch(const Variant& variant) {
  const auto integers = at::TensorOptions().dtype(at::kLong).device(at::kMeta);
  Microbatch microbatch;
  microbatch.tensors["tokens"] = at::empty({kSamples, kSequence}, integers);
  microbatch.tensors["labels"] = at::empty({kSamples, kSequence}, integers);
  microbatch.tensors["position_ids"] =
      at::empty({variant.shared_positions ? 1 : kSamples, kSequence}, integers);
  microbatch.tensors["loss_mask"] = at::empty({kSamples, kSequence}, integers.dtype(at::kFloat));
  if (variant.documents)
    microbatch.tensors["document_ids"] = at::empty({kSamples, kSequence}, integers.dtype(at::kInt));
  return microbatch;
}

/// Returns the same microbatch repeatedly.
class SameBatch : public MicrobatchSource {
 public:
  explicit SameBatch(Microbatch batch) : batch_(std::move(batch)) {}
  Microbatch next() override { return batch_; }

 private:
  Microbatch batch_;
};

class NoHostSync : public testing::TestWithParam<std::tuple<Variant, Precision>> {};

/// The single read of a step comes after everything that the step queues.
TEST_P(NoHostSync, AStepReadsNothingBeforeItsEnd) {
  const auto& [variant, precision] = GetParam();
  TransformerConfig config = tiny_gpt();
  variant.change(config);
  const Rank rank{.device = c10::Device(c10::kMeta)};
  const auto model = make_gpt_model(config, rank, /*vocab_pad_multiple=*/8);
  ParamStore weights(
      declared_parameters(*model),
      {.device = rank.device, .dtype = precision.weights, .grad_dtype = precision.gradients});
  weights.initialize(1);
  const bool is_fp16 = precision.weights == c10::kHalf;
  const auto optimizer =
      make_optimizer({}, weights, {.initial = is_fp16 ? 65536.0 : 1.0, .is_dynamic = is_fp16});
  SameBatch source(meta_batch(variant));
  Timers timers(2, TimerStatistic::minmax);
  PipelinePlan pipeline;
  const TrainStepOptions options{.num_microbatches = 2,
                                 .update = {.lr = 1e-3, .weight_decay = 0.1, .count_zeros = true}};
  try {
    train_step({*model, weights, *optimizer, source, timers, Rank(), pipeline}, options);
    FAIL() << "the step's result was read from the meta device";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("Cannot copy out of meta tensor")) << error.what();
  }
  const std::string ran =
      timers.report(std::array<std::string_view, 2>{"backward-compute", "optimizer-inner-step"});
  EXPECT_THAT(ran, testing::AllOf(testing::HasSubstr("backward-compute"),
                                  testing::HasSubstr("optimizer-inner-step")));
}

std::string test_name(const testing::TestParamInfo<NoHostSync::ParamType>& info) {
  std::string name = std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
  std::erase_if(name,
                [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '_'; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, NoHostSync,
                         testing::Combine(testing::ValuesIn(kVariants),
                                          testing::ValuesIn(kPrecisions)),
                         test_name);

}  // namespace
}  // namespace megatron
