// The loss over held-out samples: no dropout, no gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "megatron/models/language_model.h"
#include "megatron/training/agreement.h"
#include "megatron/training/microbatch_source.h"

namespace megatron {

/// Σloss / Σtokens over `num_microbatches` of the source on every rank of `dp` together; nothing when `stop` became true on the way, which it does
/// on all ranks at once. Collective over the world.
std::optional<double> evaluate(LanguageModel& model, MicrobatchSource& source, std::int64_t num_microbatches, const Meeting& dp,
                               const std::function<bool()>& stop);

}  // namespace megatron
