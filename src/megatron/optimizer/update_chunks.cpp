#include "megatron/optimizer/update_chunks.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/transformer/kernel_type.h"

namespace megatron {
namespace {

bool is_decayed(const ParameterTags& tags, const OptimizerConfig& config) { return tags.qk_norm ? config.apply_wd_to_qk_layernorm : !tags.no_decay; }

at::ScalarType state_type(const std::string& name, const MainParameters& main) {
  const at::ScalarType of_main = main.tensors().empty() ? at::kFloat : main.tensors().front().scalar_type();
  if (of_main == at::kDouble) return of_main;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  return of_main;
}

template <class T>
T* moved(T* begin, std::int64_t elements, std::size_t element_bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return begin == nullptr ? nullptr : reinterpret_cast<T*>(reinterpret_cast<Byte*>(begin) + elements * static_cast<std::int64_t>(element_bytes));
}

void* elements(const at::Tensor& tensor) {
  MEGATRON_CHECK(tensor.is_contiguous(), "an optimizer needs contiguous tensors");
  return tensor.mutable_data_ptr();
}

/// The parameter as one chunk.
kernels::UpdateChunk whole(std::size_t index, const OptimizerConfig& config, const MainParameters& main, const std::vector<OptimizerState>& states) {
  const Parameter& parameter = *main.parameters()[index];
  const ParameterTags& tags = parameter.spec().tags;
  kernels::UpdateChunk chunk{.main = elements(main.tensors()[index]),
                             .weight = main.are_separate() ? elements(parameter.value()) : nullptr,
                             .grad = elements(parameter.grad()),
                             .state = {},
                             .state_scale = {},
                             .count = parameter.value().numel(),
                             .parameter = static_cast<std::int32_t>(index),
                             .group = tags.embedding ? 1 : 0,
                             .is_decayed = is_decayed(tags, config)};
  for (std::size_t s = 0; s < states.size(); ++s) {
    chunk.state[s] = elements(states[s].tensors()[index]);
    if (!states[s].scales().empty()) chunk.state_scale[s] = static_cast<float*>(elements(states[s].scales()[index]));
  }
  return chunk;
}

kernels::UpdateChunk piece(const kernels::UpdateChunk& all, const kernels::UpdateTypes& types, std::int64_t begin) {
  const auto bytes = [](kernels::Type type) -> std::size_t { return type == kernels::Type::f64 ? 8 : type == kernels::Type::f32 ? 4 : 2; };
  kernels::UpdateChunk chunk = all;
  chunk.main = moved(all.main, begin, bytes(types.main));
  chunk.weight = moved(all.weight, begin, bytes(types.weight));
  chunk.grad = moved(all.grad, begin, bytes(types.grad));
  for (int s = 0; s < 2; ++s) {
    chunk.state[s] = moved(all.state[s], begin, bytes(types.state[s]));
    chunk.state_scale[s] = moved(all.state_scale[s], begin / kernels::kStateBlock, sizeof(float));
  }
  chunk.count = std::min(kernels::kChunkElements, all.count - begin);
  return chunk;
}

}  // namespace

std::vector<OptimizerState> make_states(const OptimizerConfig& config, const MainParameters& main) {
  std::vector<OptimizerState> states;
  const auto add = [&](const char* name, const std::string& type) { states.emplace_back(name, main.parameters(), state_type(type, main)); };
  if (config.optimizer == "adam") {
    add("exp_avg", config.exp_avg_dtype);
    add("exp_avg_sq", config.exp_avg_sq_dtype);
  } else if (config.sgd_momentum != 0) {
    add("momentum_buffer", "fp32");
  }
  return states;
}

kernels::UpdateTypes update_types(const MainParameters& main, const std::vector<OptimizerState>& states) {
  kernels::UpdateTypes types;
  if (main.parameters().empty()) return types;
  const Parameter& first = *main.parameters().front();
  MEGATRON_CHECK(first.grad().defined(), "an optimizer needs a store with gradients");
  types.main = kernel_type(main.tensors().front().scalar_type());
  types.weight = kernel_type(first.value().scalar_type());
  types.grad = kernel_type(first.grad().scalar_type());
  for (std::size_t s = 0; s < states.size(); ++s) types.state[s] = kernel_type(states[s].dtype());
  MEGATRON_CHECK(types.main != kernels::Type::f64 || types.grad == kernels::Type::f64, "float64 weights need float64 gradients");
  return types;
}

std::vector<kernels::UpdateChunk> make_update_chunks(const OptimizerConfig& config, const MainParameters& main,
                                                     const std::vector<OptimizerState>& states) {
  const kernels::UpdateTypes types = update_types(main, states);
  std::vector<kernels::UpdateChunk> chunks;
  for (std::size_t i = 0; i < main.parameters().size(); ++i) {
    const kernels::UpdateChunk all = whole(i, config, main, states);
    for (std::int64_t begin = 0; begin < all.count; begin += kernels::kChunkElements) chunks.push_back(piece(all, types, begin));
  }
  return chunks;
}

double count_padding(const MainParameters& main) {
  std::int64_t count = 0;
  for (const Parameter* parameter : main.parameters()) {
    count += num_elements(parameter->local_shape());
    for (const Box& box : parameter->sharding().boxes(parameter->axis())) count -= num_elements(box.shape);
  }
  return static_cast<double>(count);
}

}  // namespace megatron
