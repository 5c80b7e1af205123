// A set of samples that the model is evaluated on: a validation set or the test set.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "megatron/training/feeding/microbatch_source.h"

namespace megatron {

struct EvaluationSet {
  /// "", or "-<name>" or "-<index>" when there are several validation sets
  std::string suffix = {};
  std::int64_t num_microbatches = 0;  ///< per evaluation
  std::int64_t num_samples = 0;       ///< per evaluation
  bool is_full_validation = false;    ///< each evaluation starts at the first sample
  std::function<std::unique_ptr<MicrobatchSource>(std::int64_t first_sample)> open = {};
};

}  // namespace megatron
