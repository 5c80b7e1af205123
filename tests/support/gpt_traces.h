// Traces for predictions of GPTs.
#pragma once

#include <list>

#include "megatron/planner/layer_trace.h"

namespace megatron {

/// Returns empty traces, which no other call returns.
inline LayerTraces& gpt_traces() {
  static std::list<LayerTraces> all;
  return all.emplace_back(find_model_family("gpt"));
}

}  // namespace megatron
