#include "megatron/transformer/param_store.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/transformer/flat_layout.h"
#include "megatron/transformer/init.h"

namespace megatron {
namespace {

ParamBucket allocate(const std::vector<Parameter*>& parameters, const ParamStore::Options& options) {
  ParamBucket bucket;
  bucket.parameters = parameters;
  FlatLayout layout = flat_layout(parameters);
  bucket.offsets = std::move(layout.offsets);
  const auto tensor_options = at::TensorOptions().device(options.device);
  bucket.value = at::zeros({layout.size}, tensor_options.dtype(options.dtype));
  if (options.with_gradients) bucket.grad = at::zeros({layout.size}, tensor_options.dtype(options.grad_dtype.value_or(options.dtype)));
  return bucket;
}

}  // namespace

ParamStore::ParamStore(Module& model, Options options) {
  std::vector<Parameter*> declared;
  model.visit([&](Module& module) {
    for (const auto& parameter : module.parameters()) declared.push_back(parameter.get());
  });
  for (Parameter* parameter : declared) {
    const bool is_new = by_name_.emplace(parameter->name(), parameter).second;
    MEGATRON_CHECK(is_new, "two parameters are named ", parameter->name());
  }
  parameters_ = declared;
  std::ranges::sort(parameters_, {}, &Parameter::name);
  buckets_.push_back(allocate(declared, options));
  for (const ParamBucket& bucket : buckets_) {
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      Parameter& parameter = *bucket.parameters[i];
      const Shape shape = parameter.local_shape();
      const auto view = [&](const at::Tensor& flat) { return flat.narrow(0, bucket.offsets[i], num_elements(shape)).view(shape); };
      parameter.value_ = view(bucket.value);
      if (bucket.grad.defined()) parameter.grad_ = view(bucket.grad);
      parameter.sink_ = this;
    }
  }
}

ParamStore::~ParamStore() {
  for (Parameter* parameter : parameters_) {
    parameter->value_ = parameter->grad_ = at::Tensor();
    parameter->sink_ = nullptr;
  }
}

Parameter* ParamStore::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : found->second;
}

std::int64_t ParamStore::num_parameters() const {
  std::int64_t count = 0;
  for (const Parameter* parameter : parameters_) {
    for (const Box& box : parameter->sharding().boxes(parameter->axis())) count += num_elements(box.shape);
  }
  return count;
}

void ParamStore::initialize(std::uint64_t seed) {
  for (const Parameter* parameter : parameters_) initialize_parameter(*parameter, parameter->value(), seed);
}

void ParamStore::begin_gradients() {
  for (Parameter* parameter : parameters_) parameter->fresh_ = true;
}

void ParamStore::finish_gradients() {
  for (Parameter* parameter : parameters_) {
    if (parameter->fresh_) parameter->grad_.zero_();
    parameter->fresh_ = false;
  }
}

void ParamStore::contribute(Parameter& parameter, std::function<void(at::Tensor& grad, bool fresh)> write) {
  MEGATRON_CHECK(parameter.grad_.defined(), "backward through ", parameter.name(), ", whose store has no gradients");
  write(parameter.grad_, parameter.fresh_);
  parameter.fresh_ = false;
}

}  // namespace megatron
