// A set of samples that the model is evaluated on: the validation set, one of several, or the test
// set.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "megatron/training/feeding/microbatch_source.h"

namespace megatron {

struct EvaluationSet {
  std::string suffix = {};            ///< "", or "-name" and "-0" of several validation sets
  std::int64_t num_microbatches = 0;  ///< of one evaluation
  std::int64_t num_samples = 0;       ///< of one evaluation
  bool is_full_validation = false;    ///< each evaluation begins at the first sample
  std::function<std::unique_ptr<MicrobatchSource>(std::int64_t first_sample)> open = {};
};

}  // namespace megatron
