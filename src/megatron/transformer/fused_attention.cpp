#include "megatron/transformer/fused_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "kernels/cpu/attention.h"
#include "megatron/base/error.h"
#include "megatron/transformer/autograd_function.h"
#include "megatron/transformer/dropout.h"
#include "megatron/transformer/kernel_type.h"
#include "megatron/transformer/on_threads.h"
#include "megatron/transformer/op_scope.h"
#include "megatron/transformer/thread_scratch.h"

namespace megatron {
namespace {

/// The options with their tensors as the kernels read them.
struct KernelOptions : torch::CustomClassHolder {
  explicit KernelOptions(const AttentionOptions& from) : value(from) {
    if (value.alibi_slopes.defined()) value.alibi_slopes = value.alibi_slopes.to(at::kFloat).contiguous();
    if (value.document_ids.defined()) value.document_ids = value.document_ids.contiguous();
  }
  AttentionOptions value;
};

at::Tensor with_unit_stride(const at::Tensor& x) { return x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous(); }

kernels::HeadsView view_of(const at::Tensor& x) { return {x.const_data_ptr(), x.stride(0), x.stride(1), x.stride(2)}; }

std::array<std::int64_t, 3> strides_of(const at::Tensor& x) { return {x.stride(0), x.stride(1), x.stride(2)}; }

kernels::AttentionArguments arguments_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  const kernels::Type type = kernel_type(q.scalar_type());
  kernels::AttentionArguments a{.type = type,
                                .product = &kernels::panel_product(type),
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
                                .scale = options.scale,
                                .softcap = options.softcap,
                                .alibi_slopes = nullptr,
                                .document_ids = nullptr,
                                .document_stride = 0,
                                .q_start = options.q_start,
                                .k_start = options.k_start,
                                .drops = options.dropout.active(),
                                .rule = {},
                                .ordinals = nullptr,
                                .first_head = options.first_head};
  MEGATRON_CHECK(k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type(), "attention over different dtypes");
  if (options.alibi_slopes.defined()) {
    MEGATRON_CHECK(options.alibi_slopes.numel() == a.n, "attention needs a slope per head");
    a.alibi_slopes = options.alibi_slopes.const_data_ptr<float>();
  }
  if (options.document_ids.defined()) {
    const at::Tensor& ids = options.document_ids;
    MEGATRON_CHECK(ids.size(0) == a.b && ids.size(1) >= std::max(a.sq, a.sk), "attention needs a document per position");
    a.document_ids = ids.const_data_ptr<std::int32_t>();
    a.document_stride = ids.size(1);
  }
  if (a.drops) {
    a.rule = dropout_rule(options.dropout);
    a.ordinals = dropout_ordinals(options.dropout, q, a.b);
  }
  return a;
}

constexpr std::int64_t kUnitsOfAThread = 8;  ///< of a stage

/// Runs the stages of a pass, each shared among the threads.
template <class Arguments>
void run(kernels::AttentionPlan (*plan_of)(const Arguments&), void (*pass)(const Arguments&, int, std::int64_t, std::int64_t, void*, void*),
         const Arguments& arguments) {
  const kernels::AttentionPlan plan = plan_of(arguments);
  const std::int64_t threads = std::min<std::int64_t>(at::get_num_threads(), std::max(plan.parts[0], plan.parts[1]));
  const at::Tensor shared = at::empty({plan.shared_bytes}, at::kByte);
  for (int stage = 0; stage < 2; ++stage) {
    const std::int64_t parts = plan.parts[static_cast<std::size_t>(stage)];
    if (parts == 0) continue;
    const std::int64_t units = std::min(parts, kUnitsOfAThread * threads);
    share_units(units, threads, [&](std::int64_t unit) {
      pass(arguments, stage, parts * unit / units, parts * (unit + 1) / units, shared.mutable_data_ptr(), thread_scratch(plan.scratch_bytes));
    });
  }
}

struct FusedAttention : torch::autograd::Function<FusedAttention> {
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionOptions& options) {
    const at::Tensor q_rows = with_unit_stride(q), k_rows = with_unit_stride(k), v_rows = with_unit_stride(v);
    at::Tensor out = at::empty({q.size(0), q.size(1), q.size(2) * v.size(3)}, q.options());
    at::Tensor lse = at::empty({q.size(1), q.size(2), q.size(0)}, q.options().dtype(at::kFloat));
    auto holder = c10::make_intrusive<KernelOptions>(options);
    const OpScope scope(options.causal ? "megatron::causal_attention" : "megatron::attention", {q, k, v, out});
    const kernels::AttentionForwardArguments arguments{arguments_of(q_rows, k_rows, v_rows, holder->value), out.mutable_data_ptr(),
                                                       lse.mutable_data_ptr<float>()};
    run(kernels::attention_kernels().forward_plan, kernels::attention_kernels().forward, arguments);
    context->save_for_backward({q_rows, k_rows, v_rows, out, lse});
    context->saved_data["options"] = c10::IValue::make_capsule(std::move(holder));
    context->mark_non_differentiable({lse});
    return {out, lse};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &lse = saved[4];
    const auto holder = context->saved_data["options"].toCapsule();
    const AttentionOptions& options = static_cast<const KernelOptions&>(*holder).value;
    const at::Tensor dout = with_unit_stride(gradients[0].contiguous().view({q.size(0), q.size(1), q.size(2), v.size(3)}));
    at::Tensor dq = at::empty(q.sizes(), q.options()), dk = at::empty(k.sizes(), k.options()), dv = at::empty(v.sizes(), v.options());
    const OpScope scope(options.causal ? "megatron::causal_attention_backward" : "megatron::attention_backward", {dout, q, k, v, out, dq, dk, dv});
    const kernels::AttentionBackwardArguments arguments{arguments_of(q, k, v, options),
                                                        out.const_data_ptr(),
                                                        lse.const_data_ptr<float>(),
                                                        view_of(dout),
                                                        dq.mutable_data_ptr(),
                                                        dk.mutable_data_ptr(),
                                                        dv.mutable_data_ptr(),
                                                        strides_of(dq),
                                                        strides_of(dk),
                                                        strides_of(dv)};
    run(kernels::attention_kernels().backward_plan, kernels::attention_kernels().backward, arguments);
    return {dq, dk, dv, at::Tensor()};
  }
};

}  // namespace

bool fused_attention_takes(const at::Tensor& q) {
  return q.is_cpu() && (q.scalar_type() == at::kFloat || q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf);
}

AttentionResult fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  const variable_list results = FusedAttention::apply(q, k, v, options);
  return {results[0], results[1]};
}

}  // namespace megatron
