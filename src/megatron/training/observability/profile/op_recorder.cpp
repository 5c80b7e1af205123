// LibTorch's release is built with NDEBUG. Without NDEBUG here, at::RecordFunction::inputs() would
// check a flag that the release never sets.
#ifndef NDEBUG
#define NDEBUG
#endif

#include "megatron/training/observability/profile/op_recorder.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "megatron/ops/op_scope.h"
#include "megatron/training/observability/profile/op_cost.h"

namespace megatron {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void add_shapes(const c10::IValue& value, std::vector<TensorShape>& shapes) {
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor& tensor = value.toTensor();
    shapes.push_back({tensor.sizes().vec(), static_cast<double>(tensor.numel()) *
                                                static_cast<double>(tensor.itemsize())});
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) add_shapes(tensor, shapes);
  }
}

double total_bytes(const std::vector<TensorShape>& shapes) {
  double bytes = 0;
  for (const TensorShape& shape : shapes) bytes += shape.bytes;
  return bytes;
}

/// Returns the name under which an operator is listed. Attention is listed by its mask, which
/// decides its FLOPs; `causal` follows q, k, v in forward and dout, q, k, v, out, lse, top in
/// backward.
std::string listed_name(const char* name, c10::ArrayRef<const c10::IValue> inputs) {
  const std::string_view text = name;
  const std::size_t causal = text == "megatron::attention"            ? 3
                             : text == "megatron::attention_backward" ? 7
                                                                      : inputs.size();
  const bool is_causal =
      causal < inputs.size() && inputs[causal].isBool() && inputs[causal].toBool();
  return is_causal ? "megatron::causal_" + std::string(text.substr(10)) : std::string(text);
}

/// Returns the bytes of an embedding lookup or its gradient, which touches few rows of its table;
/// nullopt for other operators. `rows` are the rows of the result, or of the gradient.
std::optional<double> embedding_bytes(std::string_view name,
                                      const std::vector<TensorShape>& inputs) {
  if (name == "megatron::embedding_backward_" && inputs.size() >= 3) return 3 * inputs[2].bytes;
  return std::nullopt;
}

/// Returns the cost (FLOPs, bytes) that our kernels append to their inputs (ops/op_scope.h);
/// nullopt for other operators.
std::optional<OpCost> given_cost(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  const std::size_t count = inputs.size();
  if (!name.starts_with("megatron::") || count < 2 || !inputs[count - 1].isDouble())
    return std::nullopt;
  return OpCost{.flops = inputs[count - 2].toDouble(), .bytes = inputs[count - 1].toDouble()};
}

/// One open entry. LibTorch carries it from the start of an operator to its end. Its destructor
/// removes it from the stack of open entries.
struct Frame : at::ObserverContext {
  explicit Frame(std::vector<Frame*>& open) : stack(open) { stack.push_back(this); }
  ~Frame() override { std::erase(stack, this); }
  std::vector<Frame*>& stack;
  RecordedOp op;
  std::int64_t inner_ns = 0;
  bool has_working_child = false;
  double inner_flops = 0;  ///< already counted by operators inside
  bool knows_cost = false;
};

/// Autograd's entry around a node and its hooks. A module's backward range begins inside one such
/// entry and ends in a later one.
bool is_wrapper(std::string_view name) {
  return name.starts_with("autograd::engine::evaluate_function");
}

// LibTorch's callbacks are plain functions. They find the recorder through its thread-local debug
// information, which autograd propagates to its backward threads.
constexpr auto kSlot = c10::DebugInfoKind::TEST_INFO_2;

}  // namespace

class OpRecorder::Log : public c10::DebugInfoBase {
 public:
  explicit Log(c10::Device device) : device_(device) {}

  void close(Frame& frame) {
    if (!device_.is_cpu() && frame.op.kind == RecordedOp::Kind::op)
      c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
    RecordedOp& op = frame.op;
    op.duration_ns = now_ns() - op.start_ns;
    op.self_ns = std::max<std::int64_t>(0, op.duration_ns - frame.inner_ns);
    const double total_flops = std::max(op.flops, frame.inner_flops);
    op.flops = total_flops - frame.inner_flops;
    const bool is_leaf = op.flops > 0 || frame.knows_cost || !frame.has_working_child;
    if (!is_leaf || op.kind != RecordedOp::Kind::op) op.bytes = 0;
    std::erase(open_, &frame);
    if (!open_.empty()) {
      open_.back()->inner_ns += op.duration_ns;
      open_.back()->inner_flops += total_flops;
      open_.back()->has_working_child |= op.bytes > 0 || frame.has_working_child;
    }
    ops_.push_back(std::move(op));
  }

  void begin(std::string name, RecordedOp::Kind kind) {
    Frame& frame = *scopes_.emplace_back(std::make_unique<Frame>(open_));
    frame.op.name = std::move(name);
    frame.op.kind = kind;
    frame.op.start_ns = now_ns();
  }

  void end(const std::string& name) {
    const auto is_named = [&](const std::unique_ptr<Frame>& frame) {
      return frame->op.name == name;
    };
    if (std::none_of(scopes_.begin(), scopes_.end(), is_named)) return;
    for (bool done = false; !done;) {
      done = is_named(scopes_.back());
      close(*scopes_.back());
      scopes_.pop_back();
    }
  }

  std::vector<RecordedOp> take() { return std::exchange(ops_, {}); }

  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
    auto* log = static_cast<Log*>(c10::ThreadLocalDebugInfo::get(kSlot));
    if (log == nullptr || is_wrapper(function.name())) return nullptr;
    auto frame = std::make_unique<Frame>(log->open_);
    frame->op.name = listed_name(function.name(), function.inputs());
    frame->op.kind = function.scope() == at::RecordScope::BACKWARD_FUNCTION
                         ? RecordedOp::Kind::backward
                     : function.scope() == at::RecordScope::USER_SCOPE ? RecordedOp::Kind::module
                                                                       : RecordedOp::Kind::op;
    if (frame->op.kind == RecordedOp::Kind::op) {
      std::vector<TensorShape> shapes;
      for (const c10::IValue& input : function.inputs()) add_shapes(input, shapes);
      const auto cost = given_cost(frame->op.name, function.inputs());
      frame->op.flops = cost ? cost->flops : op_flops(frame->op.name, shapes);
      const auto rows = embedding_bytes(frame->op.name, shapes);
      frame->op.bytes = cost ? cost->bytes : rows ? *rows : total_bytes(shapes);
      frame->knows_cost = frame->op.name.starts_with("megatron::");
      frame->op.shapes = shapes_text(shapes);
    }
    frame->op.start_ns = now_ns();
    return frame;
  }

  static void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
    auto* log = static_cast<Log*>(c10::ThreadLocalDebugInfo::get(kSlot));
    if (log == nullptr || context == nullptr) return;
    Frame& frame = *static_cast<Frame*>(context);
    std::vector<TensorShape> shapes;
    for (const c10::IValue& output : function.outputs()) add_shapes(output, shapes);
    if (frame.op.name == "megatron::embedding") frame.op.bytes = total_bytes(shapes);
    frame.op.bytes = op_moves_data(frame.op.name) ? frame.op.bytes + total_bytes(shapes) : 0;
    log->close(frame);
  }

 private:
  c10::Device device_;
  std::vector<Frame*> open_;  ///< innermost entry last
  std::vector<std::unique_ptr<Frame>> scopes_;
  std::vector<RecordedOp> ops_;
};

struct OpRecorder::Registration {
  explicit Registration(const std::shared_ptr<Log>& log)
      : guard(kSlot, log),
        handle(at::addThreadLocalCallback(at::RecordFunctionCallback(&Log::on_start, &Log::on_end)
                                              .needsInputs(true)
                                              .needsOutputs(true))) {}
  ~Registration() { at::removeCallback(handle); }
  c10::DebugInfoGuard guard;
  at::CallbackHandle handle;
};

OpRecorder::OpRecorder(c10::Device device)
    : log_(std::make_shared<Log>(device)), registration_(std::make_unique<Registration>(log_)) {}

OpRecorder::~OpRecorder() = default;

void OpRecorder::begin(std::string name, RecordedOp::Kind kind) {
  log_->begin(std::move(name), kind);
}
void OpRecorder::end(const std::string& name) { log_->end(name); }
std::vector<RecordedOp> OpRecorder::take() { return log_->take(); }

}  // namespace megatron
