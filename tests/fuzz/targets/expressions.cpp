// Small languages inside flags: lists of layers, pipeline layouts, sizes of memory and splits. The
// input is a text that each of them reads.
#include <string>

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/config/byte_count.h"
#include "megatron/config/layout_string.h"
#include "megatron/config/list_expression.h"
#include "megatron/config/resolve.h"

namespace megatron::fuzz {

void parse_expressions(std::string_view input) {
  const std::string text(input);
  if (const auto list = list_expression(text))
    require(list->size() <= 100'000, "the list is longer than allowed");
  if (const auto period = layer_period(text)) require(*period >= 1, "the period is not positive");
  if (const auto bytes = byte_count(text))
    require(*bytes > 0 && *bytes < 1e18, "the size is out of range");
  split_weights(text);
  parse_layout_string(text);
}

}  // namespace megatron::fuzz
