#include "megatron/inference/check_logits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/tensor_bytes.h"

namespace megatron {
namespace {

std::vector<std::string> non_finite_parameter_names(Model& model) {
  std::vector<std::string> names;
  model.visit([&](Module& module) {
    for (const auto& parameter : module.parameters())
      if (parameter->value().defined() && count_non_finite(parameter->value()) > 0)
        names.push_back(parameter->name());
  });
  return names;
}

}  // namespace

void throw_non_finite_logits(Model& model, const std::string& place, const std::string& got) {
  const std::vector<std::string> names = non_finite_parameter_names(model);
  const std::string weights =
      names.empty() ? "" : "; weights that are not finite:" + name_lines(names);
  throw UserError({place, got + weights,
                   "the run diverged or the weights are damaged: load an earlier checkpoint "
                   "(`megatron checkpoint verify` checks it)"});
}

void check_logits(Model& model, std::span<const float> logits, const std::string& place) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto wrong =
      std::ranges::find_if(logits, [](float x) { return std::isnan(x) || x == kInfinity; });
  if (wrong != logits.end()) {
    throw_non_finite_logits(
        model, place + ": the model's logit of token " + std::to_string(wrong - logits.begin()),
        std::isnan(*wrong) ? "NaN" : "infinity");
  }
  if (*std::ranges::max_element(logits) == -kInfinity)
    throw_non_finite_logits(model, place + ": every logit of the model", "-infinity");
}

}  // namespace megatron
