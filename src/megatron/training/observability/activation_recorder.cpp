#include "megatron/training/observability/activation_recorder.h"

#include <utility>

#include "megatron/config/transformer_config.h"
#include "megatron/models/model.h"

namespace megatron {
namespace {

/// Returns the name and the kind of a unit: {"layer 3", "dense layer"} for the fourth layer.
UnitActivations described(const Module& unit, const TransformerConfig& config) {
  const ModelUnit id = model_unit(unit);
  if (!id.layer) return {.name = id.title(), .kind = id.title()};
  return {.name = id.title(), .kind = std::string(words_of(config.kind(*id.layer)))};
}

}  // namespace

ActivationRecorder::ActivationRecorder(Model& model, const ParamStore& weights)
    : model_(model), weights_(weights) {}

void ActivationRecorder::before_step(StepListener* next) {
  next_ = next;
  hooks_.emplace(model_, static_cast<UnitHooks&>(*this));
  base_bytes_.reset();
  in_flight_.clear();
  unit_bytes_.clear();
  most_ = {};
}

RecordedActivations ActivationRecorder::after_step() {
  hooks_.reset();
  return std::move(most_);
}

double ActivationRecorder::live_bytes() const {
  return tensor_memory(weights_.device()).allocated_bytes -
         static_cast<double>(weights_.unit_bytes());
}

void ActivationRecorder::begin(const ScheduleStep& step) {
  if (step.kind == StepKind::forward) {
    if (!base_bytes_) base_bytes_ = live_bytes();
    chunk_ = step.chunk;
  }
  if (next_ != nullptr) next_->begin(step);
}

void ActivationRecorder::end(const ScheduleStep& step) {
  if (next_ != nullptr) next_->end(step);
  if (step.kind == StepKind::forward) {
    ++in_flight_[step.chunk];
    record_peak();
  } else if (step.kind == StepKind::backward || step.kind == StepKind::backward_input) {
    --in_flight_[step.chunk];
  }
}

void ActivationRecorder::record_peak() {
  const double kept = live_bytes() - *base_bytes_;
  if (kept <= most_.peak) return;
  most_ = {.peak = kept};
  double rest = kept;
  for (Module* unit : model_.units()) {
    const auto bytes = unit_bytes_.find(unit);
    if (bytes == unit_bytes_.end()) continue;
    UnitActivations entry = described(*unit, model_.config());
    entry.bytes = bytes->second * static_cast<double>(in_flight_[unit_chunk_[unit]]);
    rest -= entry.bytes;
    most_.units.push_back(std::move(entry));
  }
  most_.units.push_back({.name = "loss and messages", .kind = "loss and messages", .bytes = rest});
}

void ActivationRecorder::before_forward(const Module& unit) {
  unit_begin_bytes_ = live_bytes();
  if (UnitHooks* other = other_hooks()) other->before_forward(unit);
}

void ActivationRecorder::after_forward(const Module& unit, const at::Tensor& output) {
  if (UnitHooks* other = other_hooks()) other->after_forward(unit, output);
  unit_bytes_[&unit] = live_bytes() - unit_begin_bytes_;
  unit_chunk_[&unit] = chunk_;
}

bool ActivationRecorder::observes_ops() const { return megatron::observes_ops(other_hooks()); }

void ActivationRecorder::after_op(const std::string& op, const at::Tensor& output) {
  if (UnitHooks* other = other_hooks()) other->after_op(op, output);
}

bool ActivationRecorder::observes_backward() const {
  const UnitHooks* other = other_hooks();
  return other != nullptr && other->observes_backward();
}

void ActivationRecorder::before_backward(const Module& unit, const at::Tensor& gradient) {
  if (UnitHooks* other = other_hooks()) other->before_backward(unit, gradient);
}

void ActivationRecorder::after_backward(const Module& unit) {
  if (UnitHooks* other = other_hooks()) other->after_backward(unit);
}

}  // namespace megatron
