#include "megatron/optimizer/update_chunks.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/ops/kernel_type.h"

namespace megatron {
namespace {

bool is_decayed(const ParameterTags& tags, const OptimizerConfig& config) {
  return tags.qk_norm ? config.apply_wd_to_qk_layernorm : !tags.no_decay;
}

/// Returns any bucket of trained parameters; null when the rank holds none.
const ParamBucket* trained_bucket(const ParamStore& store) {
  const auto found = std::ranges::find_if(store.buckets(), &ParamBucket::is_trained);
  return found == store.buckets().end() ? nullptr : &*found;
}

at::ScalarType main_type(const ParamStore& store, const MainParameters& main) {
  const ParamBucket* bucket = trained_bucket(store);
  return main.has_fp32_copies() || bucket == nullptr ? at::kFloat : bucket->value.scalar_type();
}

at::ScalarType state_type(const std::string& name, at::ScalarType of_main) {
  if (of_main == at::kDouble) return of_main;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  return of_main;
}

void* element(const at::Tensor& flat, std::int64_t index) {
  MEGATRON_CHECK(flat.is_contiguous(), "an optimizer needs contiguous tensors");
  return static_cast<char*>(flat.mutable_data_ptr()) +
         static_cast<std::size_t>(index) * flat.element_size();
}

}  // namespace

std::vector<OptimizerState> make_states(const OptimizerConfig& config, const ParamStore& store,
                                        const MainParameters& main) {
  std::vector<OptimizerState> states;
  const auto add = [&](const char* name, const std::string& type) {
    states.emplace_back(name, store, state_type(type, main_type(store, main)));
  };
  if (config.optimizer == "adam") {
    add("exp_avg", config.exp_avg_dtype);
    add("exp_avg_sq", config.exp_avg_sq_dtype);
  } else if (config.sgd_momentum != 0) {
    add("momentum_buffer", "fp32");
  }
  return states;
}

kernels::UpdateTypes update_types(const ParamStore& store, const MainParameters& main,
                                  const std::vector<OptimizerState>& states) {
  kernels::UpdateTypes types;
  const ParamBucket* const any = trained_bucket(store);
  if (any == nullptr) return types;
  const ParamBucket& bucket = *any;
  MEGATRON_CHECK(bucket.grad.defined(), "an optimizer needs a store with gradients");
  types.main = kernel_type(main_type(store, main));
  types.weight = kernel_type(bucket.value.scalar_type());
  types.grad = kernel_type(bucket.grad.scalar_type());
  for (std::size_t s = 0; s < states.size(); ++s) types.state[s] = kernel_type(states[s].dtype());
  MEGATRON_CHECK(types.main != kernels::Type::f64 || types.grad == kernels::Type::f64,
                 "float64 weights need float64 gradients");
  return types;
}

std::vector<kernels::UpdateChunk> make_update_chunks(const OptimizerConfig& config,
                                                     const ParamStore& store,
                                                     const MainParameters& main,
                                                     const std::vector<OptimizerState>& states) {
  std::vector<kernels::UpdateChunk> chunks;
  for (std::size_t i = 0; i < main.sums().ranges().size(); ++i) {
    const SumRange& run = main.sums().ranges()[i];
    const ParameterPiece& piece = store.pieces()[run.piece];
    const ParamBucket& bucket = store.buckets()[piece.bucket];
    const ParameterTags& tags = piece.parameter->spec().tags;
    kernels::UpdateChunk chunk =
        main.sums().chunk(i, bucket.grad.narrow(0, piece.offset, piece.count));
    chunk.main = element(main.tensors()[run.piece], run.begin);
    // Precise weights are all-gathered in float32 and rounded after the all-gather.
    if (main.has_fp32_copies() && !(bucket.is_precise && bucket.is_sharded()))
      chunk.weight = element(bucket.value, piece.offset + run.begin);
    for (std::size_t s = 0; s < states.size(); ++s) {
      chunk.state[s] = element(states[s].tensors()[run.piece], run.begin);
      if (!states[s].scales().empty())
        chunk.state_scale[s] = static_cast<float*>(
            element(states[s].scales()[run.piece], run.begin / kernels::kStateBlock));
    }
    chunk.group = tags.embedding ? 1 : 0;
    chunk.is_decayed = is_decayed(tags, config);
    chunks.push_back(chunk);
  }
  return chunks;
}

}  // namespace megatron
