// Numbers of JSON as the `tokenizers` package reads them.
#pragma once

#include <string_view>

namespace megatron::hugging_face {

/// Returns the value of a JSON number as Rust's serde_json rounds it without its feature
/// float_roundtrip: the digits as a whole number, multiplied or divided by a power of ten. The
/// result may differ from the nearest double in the last bit, which decides between segmentations
/// of equal scores. `number` must be valid JSON; what follows the number is ignored. It is infinite
/// where serde_json refuses the number, also just below the largest double.
double read_json_number(std::string_view number);

}  // namespace megatron::hugging_face
