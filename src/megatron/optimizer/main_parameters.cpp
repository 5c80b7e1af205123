#include "megatron/optimizer/main_parameters.h"

#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <cmath>

#include "megatron/optimizer/flat_tensors.h"
#include "megatron/transformer/init.h"

namespace megatron {

MainParameters::MainParameters(ParamStore& store)
    : parameters_(store.parameters()),
      are_separate_(std::ranges::any_of(parameters_, [](const Parameter* parameter) { return parameter->value().element_size() == 2; })) {
  if (are_separate_) tensors_ = flat_tensors(parameters_, at::kFloat);
  if (!are_separate_)
    std::ranges::transform(parameters_, std::back_inserter(tensors_), [](const Parameter* parameter) { return parameter->value(); });
  take_weights();
  if (!are_separate_) return;
  for (std::size_t i = 0; i < tensors_.size(); ++i) parameters_[i]->set_main(tensors_[i]);
}

MainParameters::~MainParameters() {
  if (!are_separate_) return;
  for (Parameter* parameter : parameters_) parameter->set_main({});
}

void MainParameters::initialize(std::uint64_t seed) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) initialize_parameter(*parameters_[i], tensors_[i], seed);
  write_weights();
}

void MainParameters::take_weights() {
  if (!are_separate_) return;
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].copy_(parameters_[i]->value());
}

void MainParameters::write_weights() {
  if (!are_separate_) return;
  for (std::size_t i = 0; i < tensors_.size(); ++i) at::Tensor(parameters_[i]->value()).copy_(tensors_[i]);
}

double MainParameters::norm() const {
  double sum = 0;
  for (const at::Tensor& tensor : tensors_) {
    const double norm = at::linalg_vector_norm(tensor, 2, std::nullopt, false, at::kDouble).item<double>();
    sum += norm * norm;
  }
  return std::sqrt(sum);
}

}  // namespace megatron
