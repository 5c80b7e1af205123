// The kinds of samples: what a data set makes, and what a family of models trains on.
#pragma once

namespace megatron {

enum class SampleKind { gpt, bert, t5 };

}  // namespace megatron
