#include "megatron/optimizer/elementwise_rule.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/optimizer/copy_to_device.h"
#include "megatron/optimizer/optimizer_operations.h"

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

StateFormat format_of(const ElementwiseRule::StateSpec& spec, at::ScalarType of_main) {
  if (of_main == at::kDouble) return of_main;
  return state_format(spec.dtype, spec.is_non_negative);
}

void* element(const at::Tensor& flat, std::int64_t index) {
  MEGATRON_CHECK(flat.is_contiguous(), "a flat tensor has strides ", flat.strides());
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
  for (std::size_t s = 0; s < states.size(); ++s) {
    if (states[s].format().code == nullptr) types.state[s] = kernel_type(states[s].format().dtype);
  }
  MEGATRON_CHECK(types.main != kernels::Type::f64 || types.grad == kernels::Type::f64,
                 "float64 weights need float64 gradients");
  return types;
}

}  // namespace

ElementwiseRule::ElementwiseRule(const OptimizerConfig& config, const ParamStore& store,
                                 const MainParameters& main, Options options)
    : config_(config), store_(store), main_(main), options_(std::move(options)) {
  MEGATRON_CHECK(options_.states.size() <= std::size(plan_.types.state), "a rule keeps ",
                 options_.states.size(), " states, more than ", std::size(plan_.types.state));
  for (const StateSpec& spec : options_.states)
    states_.emplace_back(spec.name, store, format_of(spec, main_type(store, main)),
                         options_.selects, main.offload());
  std::vector<SumRange> in_memory;
  for (const SumRange& range : main.sums().ranges()) {
    const ParameterPiece& piece = store.pieces()[range.piece];
    if (!options_.selects(*piece.parameter)) continue;
    if (main.offload() && main.offload()->contains(range.piece)) continue;
    const bool is_offloaded = store.buckets()[piece.bucket].offloads_values;
    (is_offloaded ? with_offloaded_weights_[piece.bucket] : in_memory).push_back(range);
  }
  const std::vector<kernels::UpdateChunk> chunks = chunks_in_memory(in_memory);
  table_ = copy_to_device(chunks, store.device());
  plan_ = {.chunks = static_cast<const kernels::UpdateChunk*>(table_.const_data_ptr()),
           .num_chunks = static_cast<std::int64_t>(chunks.size()),
           .types = update_types(store, main, states_),
           .scalars = nullptr};
  for (std::size_t s = 0; s < states_.size(); ++s) {
    if (states_[s].format().code == nullptr) continue;
    codes_.push_back(copy_to_device(std::vector{*states_[s].format().code}, store.device()));
    plan_.types.code[s] = static_cast<const kernels::StateCode*>(codes_.back().const_data_ptr());
  }
}

kernels::UpdateChunk ElementwiseRule::base_chunk(const SumRange& range) const {
  const ParameterPiece& piece = store_.pieces()[range.piece];
  const ParamBucket& bucket = store_.buckets()[piece.bucket];
  const std::int64_t first = piece.offset - bucket.own_begin + range.begin;
  const ParameterTags& tags = piece.parameter->spec().tags;
  kernels::UpdateChunk chunk{.main = nullptr,
                             .weight = nullptr,
                             .grad = element(bucket.own_grad, first),
                             .state = {},
                             .state_scale = {},
                             .count = range.count,
                             .group = tags.embedding ? 1 : 0,
                             .is_decayed = is_decayed(tags, config_),
                             .lr_factor = tags.learning_rate_factor};
  if (main_.tensors()[range.piece].defined())
    chunk.main = element(main_.tensors()[range.piece], range.begin);
  // Precise weights that every rank keeps whole are all-gathered in float32 and rounded after the
  // all-gather.
  if (main_.has_fp32_copies() && !(bucket.is_precise && bucket.gathers_after_update()))
    chunk.weight = element(bucket.own_value, first);
  return chunk;
}

std::vector<kernels::UpdateChunk> ElementwiseRule::chunks_in_memory(
    const std::vector<SumRange>& ranges) const {
  std::vector<kernels::UpdateChunk> chunks;
  for (const SumRange& range : ranges) {
    kernels::UpdateChunk chunk = base_chunk(range);
    for (std::size_t s = 0; s < states_.size(); ++s) {
      chunk.state[s] = element(states_[s].tensors()[range.piece], range.begin);
      if (!states_[s].scales().empty())
        chunk.state_scale[s] = static_cast<float*>(
            element(states_[s].scales()[range.piece], range.begin / kernels::kStateBlock));
    }
    chunks.push_back(chunk);
  }
  return chunks;
}

std::vector<kernels::UpdateChunk> ElementwiseRule::chunks_of_window(std::size_t window) const {
  std::vector<kernels::UpdateChunk> chunks;
  const StateWindow& ranges = main_.offload()->windows()[window];
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    if (!options_.selects(*store_.pieces()[ranges[r].piece].parameter)) continue;
    kernels::UpdateChunk chunk = base_chunk(ranges[r]);
    if (chunk.main == nullptr) chunk.main = element(main_.offloaded()->elements(window, r), 0);
    for (std::size_t s = 0; s < states_.size(); ++s) {
      chunk.state[s] = element(states_[s].offloaded()->elements(window, r), 0);
      if (!states_[s].scales().empty())
        chunk.state_scale[s] =
            static_cast<float*>(element(states_[s].offloaded()->scales(window, r), 0));
    }
    chunks.push_back(chunk);
  }
  return chunks;
}

void ElementwiseRule::for_each_array(const std::function<void(OffloadedArray&)>& visit) const {
  if (main_.offloaded() != nullptr) visit(*main_.offloaded());
  for (const OptimizerState& state : states_) visit(*state.offloaded());
}

void ElementwiseRule::update(const kernels::StepScalars* scalars) {
  plan_.scalars = scalars;
  options_.update(plan_);
  const bool is_skipped = store_.device().is_cpu() && scalars->applied == 0;
  if (is_skipped) return;
  if (main_.offload()) update_windows();
  update_offloaded_weights();
}

void ElementwiseRule::run(const std::vector<kernels::UpdateChunk>& chunks) {
  const at::Tensor table = copy_to_device(chunks, store_.device());
  kernels::UpdatePlan plan = plan_;
  plan.chunks = static_cast<const kernels::UpdateChunk*>(table.const_data_ptr());
  plan.num_chunks = static_cast<std::int64_t>(chunks.size());
  options_.update(plan);
}

void ElementwiseRule::update_offloaded_weights() {
  for (const auto& [bucket, ranges] : with_offloaded_weights_) {
    main_.open_model_values(bucket);
    run(chunks_in_memory(ranges));
    main_.close_model_values(bucket);
  }
}

std::set<std::size_t> ElementwiseRule::offloaded_buckets(std::size_t window) const {
  std::set<std::size_t> buckets;
  if (window >= main_.offload()->windows().size()) return buckets;
  for (const SumRange& range : main_.offload()->windows()[window]) {
    const ParameterPiece& piece = store_.pieces()[range.piece];
    if (store_.buckets()[piece.bucket].offloads_values && options_.selects(*piece.parameter))
      buckets.insert(piece.bucket);
  }
  return buckets;
}

void ElementwiseRule::update_windows() {
  for_each_array([](OffloadedArray& array) { array.flush(); });
  const bool reads_ahead = main_.offload()->options().overlaps_copies;
  std::set<std::size_t> buckets = offloaded_buckets(0);
  for (std::size_t w = 0; w < main_.offload()->windows().size(); ++w) {
    for_each_array([&](OffloadedArray& array) { array.open(w); });
    if (reads_ahead) for_each_array([&](OffloadedArray& array) { array.prefetch(w + 1); });
    for (const std::size_t bucket : buckets) main_.open_model_values(bucket);
    run(chunks_of_window(w));
    std::set<std::size_t> next = offloaded_buckets(w + 1);
    for (const std::size_t bucket : buckets)
      if (!next.contains(bucket)) main_.close_model_values(bucket);
    buckets = std::move(next);
    for_each_array([&](OffloadedArray& array) { array.close(w); });
  }
}

std::unique_ptr<UpdateRule> make_adamw(const OptimizerConfig& config, const ParamStore& store,
                                       const MainParameters& main, ParameterSelector selects) {
  const kernels::AdamwRule rule{
      .beta1 = config.adam_beta1, .beta2 = config.adam_beta2, .eps = config.adam_eps};
  return std::make_unique<ElementwiseRule>(
      config, store, main,
      ElementwiseRule::Options{
          .selects = std::move(selects),
          .states = {{"exp_avg", config.exp_avg_dtype},
                     {"exp_avg_sq", config.exp_avg_sq_dtype, true}},
          .update = [rule, update = optimizer_operations(store.device()).adamw](
                        const kernels::UpdatePlan& plan) { update(plan, rule); }});
}

std::unique_ptr<UpdateRule> make_sgd(const OptimizerConfig& config, const ParamStore& store,
                                     const MainParameters& main, ParameterSelector selects) {
  const kernels::SgdRule rule{.momentum = config.sgd_momentum};
  ElementwiseRule::Options options{
      .selects = std::move(selects),
      .states = {},
      .update = [rule, update = optimizer_operations(store.device()).sgd](
                    const kernels::UpdatePlan& plan) { update(plan, rule); }};
  if (config.sgd_momentum != 0) options.states = {{"momentum_buffer", "fp32"}};
  return std::make_unique<ElementwiseRule>(config, store, main, std::move(options));
}

}  // namespace megatron
