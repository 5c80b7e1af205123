#include "megatron/optimizer/elementwise_rule.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/optimizer/copy_to_device.h"

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
  return main.has_fp32_copies() || bucket == nullptr ? at::kFloat : bucket->dtype;
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

kernels::UpdateTypes update_types(const ParamStore& store, const MainParameters& main,
                                  const std::vector<OptimizerState>& states) {
  kernels::UpdateTypes types;
  const ParamBucket* const bucket = trained_bucket(store);
  if (bucket == nullptr) return types;
  MEGATRON_CHECK(bucket->own_grad.defined(), "an optimizer needs a store with gradients");
  types.main = kernel_type(main_type(store, main));
  types.weight = kernel_type(bucket->dtype);
  types.grad = kernel_type(bucket->own_grad.scalar_type());
  for (std::size_t s = 0; s < states.size(); ++s) types.state[s] = kernel_type(states[s].dtype());
  MEGATRON_CHECK(types.main != kernels::Type::f64 || types.grad == kernels::Type::f64,
                 "float64 weights need float64 gradients");
  return types;
}

/// Returns one chunk for each range of main.sums() whose piece is selected.
std::vector<kernels::UpdateChunk> update_chunks(const OptimizerConfig& config,
                                                const ParamStore& store, const MainParameters& main,
                                                const ParameterSelector& selects,
                                                const std::vector<OptimizerState>& states) {
  std::vector<kernels::UpdateChunk> chunks;
  for (const SumRange& range : main.sums().ranges()) {
    const ParameterPiece& piece = store.pieces()[range.piece];
    if (!selects(*piece.parameter)) continue;
    const ParamBucket& bucket = store.buckets()[piece.bucket];
    const std::int64_t first = piece.offset - bucket.own_begin + range.begin;
    const ParameterTags& tags = piece.parameter->spec().tags;
    kernels::UpdateChunk chunk{.main = element(main.tensors()[range.piece], range.begin),
                               .weight = nullptr,
                               .grad = element(bucket.own_grad, first),
                               .state = {},
                               .state_scale = {},
                               .count = range.count,
                               .group = tags.embedding ? 1 : 0,
                               .is_decayed = is_decayed(tags, config)};
    // Precise weights that every rank keeps whole are all-gathered in float32 and rounded after
    // the all-gather.
    const bool is_gathered = bucket.is_precise && bucket.is_sharded() && !bucket.shards_values();
    if (main.has_fp32_copies() && !is_gathered) chunk.weight = element(bucket.own_value, first);
    for (std::size_t s = 0; s < states.size(); ++s) {
      chunk.state[s] = element(states[s].tensors()[range.piece], range.begin);
      if (!states[s].scales().empty())
        chunk.state_scale[s] = static_cast<float*>(
            element(states[s].scales()[range.piece], range.begin / kernels::kStateBlock));
    }
    chunks.push_back(chunk);
  }
  return chunks;
}

}  // namespace

ElementwiseRule::ElementwiseRule(const OptimizerConfig& config, const ParamStore& store,
                                 const MainParameters& main, Options options)
    : options_(std::move(options)) {
  MEGATRON_CHECK(options_.states.size() <= std::size(plan_.types.state), "a rule keeps ",
                 options_.states.size(), " states");
  for (const StateSpec& spec : options_.states)
    states_.emplace_back(spec.name, store, state_type(spec.dtype, main_type(store, main)),
                         options_.selects);
  const std::vector<kernels::UpdateChunk> chunks =
      update_chunks(config, store, main, options_.selects, states_);
  table_ = copy_to_device(chunks, store.device());
  plan_ = {.chunks = static_cast<const kernels::UpdateChunk*>(table_.const_data_ptr()),
           .num_chunks = static_cast<std::int64_t>(chunks.size()),
           .types = update_types(store, main, states_),
           .scalars = nullptr};
}

void ElementwiseRule::update(const kernels::StepScalars* scalars) {
  plan_.scalars = scalars;
  options_.update(plan_);
}

}  // namespace megatron
