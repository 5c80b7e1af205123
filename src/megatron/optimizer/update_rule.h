// An update rule: how a set of parameters changes, given the scalars of the step. The optimizer has
// computed these, whatever the rule.
#pragma once

#include <functional>
#include <vector>

#include "kernels/step_scalars.h"
#include "megatron/optimizer/optimizer_state.h"
#include "megatron/params/parameter.h"

namespace megatron {

/// Selects the parameters of a rule by their declaration, so that all ranks select the same.
using ParameterSelector = std::function<bool(const Parameter&)>;

/// Selects every parameter.
inline bool every_parameter(const Parameter&) { return true; }

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  /// Returns whether the rule updates a trained parameter.
  virtual bool updates(const Parameter& parameter) const = 0;
  /// Returns the rule's states, each with an element for each element of a parameter.
  virtual std::vector<OptimizerState>& states() = 0;
  /// Queues one update of this rank's pieces. `scalars` lies on the device of the weights; nothing
  /// changes when it says that the step is not applied. A rule that needs whole matrices asks for
  /// DataParallelOptions::keeps_parameters_whole.
  virtual void update(const kernels::StepScalars* scalars) = 0;
};

}  // namespace megatron
