#include "megatron/ops/fused_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/conversions.h"
#include "megatron/base/error.h"
#include "megatron/ops/dropout.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/parallel_kernel.h"

namespace megatron {
namespace {

/// The options and tensors in the form that the kernels read.
AttentionOptions kernel_options(AttentionOptions options) {
  if (options.alibi_slopes.defined())
    options.alibi_slopes = options.alibi_slopes.to(at::kFloat).contiguous();
  if (options.sinks.defined()) options.sinks = options.sinks.to(at::kFloat).contiguous();
  if (options.distance_bias.defined())  // the kernels read whole blocks of keys
    options.distance_bias =
        at::constant_pad_nd(options.distance_bias.to(at::kFloat), {0, kernels::kAttentionKeys})
            .contiguous();
  if (options.document_ids.defined()) options.document_ids = options.document_ids.contiguous();
  if (options.key_document_ids.defined())
    options.key_document_ids = options.key_document_ids.contiguous();
  return options;
}

kernels::HeadsView view_of(const at::Tensor& x) {
  return {x.const_data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}

std::array<std::int64_t, 3> strides_of(const at::Tensor& x) {
  return {x.stride(0), x.stride(1), x.stride(2)};
}

kernels::AttentionArguments arguments_of(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionOptions& options) {
  const kernels::Type type = kernel_type(q.scalar_type());
  kernels::AttentionArguments a{.type = type,
                                .micro_kernel = &kernels::gemm_micro_kernel(type),
                                .sq = q.size(0),
                                .sk = k.size(0),
                                .b = q.size(1),
                                .n = q.size(2),
                                .g = k.size(2),
                                .d = q.size(3),
                                .dv = v.size(3),
                                .q = view_of(q),
                                .k = view_of(k),
                                .v = view_of(v),
                                .causal = options.causal,
                                .window = options.window,
                                .chunk = options.chunk,
                                .scale = options.scale,
                                .softcap = options.softcap,
                                .alibi_slopes = nullptr,
                                .distance_bias = nullptr,
                                .distance_stride = 0,
                                .sinks = nullptr,
                                .document_ids = nullptr,
                                .document_stride = 0,
                                .key_document_ids = nullptr,
                                .key_document_stride = 0,
                                .q_start = options.q_start,
                                .k_start = options.k_start,
                                .total_q = options.total_q,
                                .total_k = options.total_k,
                                .has_dropout = options.dropout.active(),
                                .rule = {},
                                .ordinals = nullptr,
                                .first_head = options.first_head};
  MEGATRON_CHECK(k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type(),
                 "attention of ", q.scalar_type(), ", ", k.scalar_type(), ", ", v.scalar_type());
  if (options.alibi_slopes.defined()) {
    MEGATRON_CHECK(options.alibi_slopes.numel() == a.n, options.alibi_slopes.numel(),
                   " slopes for ", a.n, " heads");
    a.alibi_slopes = options.alibi_slopes.const_data_ptr<float>();
  }
  if (options.distance_bias.defined()) {
    a.distance_stride = options.distance_bias.size(1);
    MEGATRON_CHECK(options.distance_bias.size(0) == a.n &&
                       a.distance_stride == a.total_q + a.total_k - 1 + kernels::kAttentionKeys,
                   "a bias of distances ", options.distance_bias.sizes(), " for ", a.n, " heads, ",
                   a.total_q, " queries and ", a.total_k, " keys");
    a.distance_bias = options.distance_bias.const_data_ptr<float>();
  }
  if (options.sinks.defined()) {
    MEGATRON_CHECK(options.sinks.numel() == a.n, options.sinks.numel(), " sinks for ", a.n,
                   " heads");
    a.sinks = options.sinks.const_data_ptr<float>();
  }
  if (options.document_ids.defined()) {
    const at::Tensor &ids = options.document_ids,
                     &of_keys = options.key_document_ids.defined() ? options.key_document_ids : ids;
    MEGATRON_CHECK(ids.size(0) == a.b && ids.size(1) >= a.q_start + a.sq &&
                       of_keys.size(0) == a.b && of_keys.size(1) >= a.k_start + a.sk,
                   "document ids ", ids.sizes(), " and ", of_keys.sizes(), " for batch ", a.b, ", ",
                   a.q_start + a.sq, " queries, ", a.k_start + a.sk, " keys");
    a.document_ids = ids.const_data_ptr<std::int32_t>();
    a.document_stride = ids.size(1);
    a.key_document_ids = of_keys.const_data_ptr<std::int32_t>();
    a.key_document_stride = of_keys.size(1);
  }
  if (a.has_dropout) {
    a.rule = dropout_rule(options.dropout);
    a.ordinals = dropout_ordinals(options.dropout, q, a.b);
  }
  return a;
}

/// Work units of a stage per thread: of one call, and of calls whose parts differ in size.
constexpr std::int64_t kUnitsPerThread = 8, kUnitsPerThreadOfCalls = 32;

/// Runs the stages of a pass of some calls in order, each in parallel on the threads.
template <class Arguments>
void run(kernels::AttentionPlan (*plan_of)(const Arguments&),
         void (*pass)(const Arguments&, int, std::int64_t, std::int64_t, void*, void*),
         const std::vector<std::type_identity_t<Arguments>>& calls) {
  std::array<std::vector<std::int64_t>, 2> parts_before{{{0}, {0}}};  // of each call, by stage
  std::vector<std::int64_t> shared_before{0};
  std::int64_t workspace_bytes = 0;
  for (const Arguments& call : calls) {
    const kernels::AttentionPlan plan = plan_of(call);
    for (std::size_t stage = 0; stage < 2; ++stage)
      parts_before[stage].push_back(parts_before[stage].back() + plan.parts[stage]);
    shared_before.push_back(shared_before.back() + plan.shared_bytes);
    workspace_bytes = std::max(workspace_bytes, plan.workspace_bytes);
  }
  const at::Tensor shared = at::empty({shared_before.back()}, at::kByte);
  auto* const memory = static_cast<char*>(shared.mutable_data_ptr());
  for (int stage = 0; stage < 2; ++stage) {
    const auto& before = parts_before[static_cast<std::size_t>(stage)];
    const std::int64_t parts = before.back();
    if (parts == 0) continue;
    const std::int64_t threads = std::min<std::int64_t>(at::get_num_threads(), parts),
                       each = calls.size() == 1 ? kUnitsPerThread : kUnitsPerThreadOfCalls,
                       units = std::min(parts, each * threads);
    dynamic_parallel_for(units, threads, [&](std::int64_t unit) {
      const std::int64_t end = parts * (unit + 1) / units;
      for (std::int64_t part = parts * unit / units, stop = part; part < end; part = stop) {
        const auto next = std::ranges::upper_bound(before, part);
        const auto i = static_cast<std::size_t>(next - before.begin()) - 1;
        stop = std::min(end, *next);
        pass(calls[i], stage, part - before[i], stop - before[i], memory + shared_before[i],
             thread_workspace(workspace_bytes));
      }
    });
  }
}

AttentionInputs readable(const AttentionInputs& inputs) {
  return {with_unit_stride(inputs.q), with_unit_stride(inputs.k), with_unit_stride(inputs.v)};
}

}  // namespace

bool fused_attention_supports(c10::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

AttentionResult fused_attention(const AttentionInputs& inputs, const AttentionOptions& given) {
  const auto [q, k, v] = readable(inputs);
  const AttentionOptions options = kernel_options(given);
  AttentionResult result{
      .out = at::empty({q.size(0), q.size(1), q.size(2) * v.size(3)}, q.options()),
      .lse = at::empty({q.size(1), q.size(2), q.size(0)}, q.options().dtype(at::kFloat))};
  if (options.wants_top) result.top = at::empty_like(result.lse);
  run(kernels::attention_kernels().forward_plan, kernels::attention_kernels().forward,
      {kernels::AttentionForwardArguments{
          arguments_of(q, k, v, options), result.out.mutable_data_ptr(),
          result.lse.mutable_data_ptr<float>(),
          options.wants_top ? result.top.mutable_data_ptr<float>() : nullptr}});
  return result;
}

at::Tensor packed_attention(const AttentionInputs& inputs, const AttentionOptions& given,
                            std::span<const PackedSequence> sequences) {
  const bool attends = inputs.q.defined();
  const auto [q, k, v] = readable({attends ? inputs.q : inputs.k, inputs.k, inputs.v});
  const AttentionOptions options = kernel_options(attends ? given : AttentionOptions{});
  MEGATRON_CHECK(
      !options.dropout.active() && !options.document_ids.defined() && !options.max_scores.defined(),
      "attention to a cache has no dropout, documents or record of scores");
  const std::int64_t rows = attends ? q.size(0) : 0, row_heads = q.size(1) * q.size(2);
  at::Tensor out = at::empty({rows, q.size(1), q.size(2) * v.size(3)}, q.options());
  const at::Tensor lse = at::empty({rows * row_heads}, q.options().dtype(at::kFloat));
  const kernels::AttentionForwardArguments whole{
      arguments_of(q, k, v, options), out.mutable_data_ptr(), lse.mutable_data_ptr<float>()};
  std::vector<kernels::AttentionForwardArguments> calls(sequences.size(), whole);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    kernels::AttentionForwardArguments& call = calls[i];
    const auto& [first, count, start, blocks, numbers, cache_type, is_appended, foreign] =
        sequences[i];
    call.sq = attends ? count : 0;
    call.q_start = start;
    call.sk = sequences[i].num_keys();
    if (call.distance_bias == nullptr) call.total_q = call.total_k = call.sk;
    MEGATRON_CHECK(call.sk <= call.total_k, call.sk, " keys, and biases of ", call.total_k);
    for (kernels::HeadsView* x : {&call.q, &call.k, &call.v})
      x->data = kernels::element_at(x->data, call.type, first * x->position_stride);
    call.out = kernels::element_at(call.out, call.type, first * row_heads * call.dv);
    call.lse += first * row_heads;
    call.packed = {blocks->addresses(), numbers, is_appended ? 0 : count, cache_type};
  }
  run(kernels::attention_kernels().forward_plan, kernels::attention_kernels().forward, calls);
  return out;
}

AttentionGradients fused_attention_backward(const at::Tensor& gradient,
                                            const AttentionInputs& inputs,
                                            const AttentionResult& result,
                                            const AttentionOptions& given) {
  const auto [q, k, v] = readable(inputs);
  const AttentionOptions options = kernel_options(given);
  const at::Tensor dout =
      with_unit_stride(gradient.contiguous().view({q.size(0), q.size(1), q.size(2), v.size(3)}));
  AttentionGradients d{{at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
                        at::empty(v.sizes(), v.options())}};
  float* bias = nullptr;
  if (options.distance_bias.defined()) {
    d.distance_bias = at::empty_like(options.distance_bias);
    bias = d.distance_bias.mutable_data_ptr<float>();
  }
  run(kernels::attention_kernels().backward_plan, kernels::attention_kernels().backward,
      {kernels::AttentionBackwardArguments{
          arguments_of(q, k, v, options), result.out.const_data_ptr(),
          result.lse.const_data_ptr<float>(), view_of(dout), d.q.mutable_data_ptr(),
          d.k.mutable_data_ptr(), d.v.mutable_data_ptr(), strides_of(d.q), strides_of(d.k),
          strides_of(d.v), bias}});
  if (bias != nullptr)
    d.distance_bias = d.distance_bias.narrow(1, 0, given.distance_bias.size(1))
                          .to(given.distance_bias.scalar_type());
  return d;
}

AttentionBuffers fused_attention_buffers(const AttentionSizes& sizes, c10::ScalarType type) {
  kernels::AttentionArguments a{};
  a.type = kernel_type(type);
  a.micro_kernel = &kernels::gemm_micro_kernel(a.type);
  a.sq = a.total_q = sizes.sq;
  a.sk = a.total_k = sizes.sk;
  a.b = sizes.b;
  a.n = sizes.n;
  a.g = sizes.g;
  a.d = a.dv = sizes.d;
  kernels::AttentionForwardArguments forward{};
  kernels::AttentionBackwardArguments backward{};
  static_cast<kernels::AttentionArguments&>(forward) = a;
  static_cast<kernels::AttentionArguments&>(backward) = a;
  const kernels::AttentionPlan plans[] = {kernels::attention_kernels().forward_plan(forward),
                                          kernels::attention_kernels().backward_plan(backward)};
  return {.forward = plans[0].shared_bytes,
          .backward = plans[1].shared_bytes,
          .per_thread = std::max(plans[0].workspace_bytes, plans[1].workspace_bytes)};
}

}  // namespace megatron
