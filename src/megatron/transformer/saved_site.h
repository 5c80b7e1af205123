// A dropout site in the saved context of an autograd function. Include only in .cpp files.
#pragma once

#include "megatron/transformer/autograd_function.h"
#include "megatron/transformer/random_site.h"

namespace megatron {

inline void save_site(AutogradContext* context, const DropoutSite& site) {
  context->saved_data["key"] = static_cast<std::int64_t>(site.key);
  context->saved_data["probability"] = site.probability;
  context->saved_data["ordinals"] = site.sample_ordinals;
}

inline DropoutSite load_site(AutogradContext* context) {
  return {.probability = context->saved_data["probability"].toDouble(),
          .key = static_cast<std::uint64_t>(context->saved_data["key"].toInt()),
          .sample_ordinals = context->saved_data["ordinals"].toTensor()};
}

}  // namespace megatron
