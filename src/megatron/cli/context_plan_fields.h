// The flags of `megatron plan --show-context`. The table of `plan` declares them for the help,
// plan_context.cpp reads them.
#pragma once

#include "megatron/config/field_table.h"

namespace megatron {

/// Defaults of the flags: about those of an H100 with a 400 Gbit/s network card.
inline constexpr double kAttentionTflops = 400, kLinkGbytesPerS = 50, kLinkLatencyUs = 10;

/// Adds the flags to a table whose options have the members show_context, attention_tflops,
/// link_gbytes_per_s and link_latency_us.
template <class T>
void add_context_plan_fields(FieldTable<T>& t) {
  t.group("Context parallelism");
  t.field("show_context", &T::show_context,
          "with the flags of a run: draw which positions each rank of --context-parallel-size "
          "holds, what it computes and sends in each step of a layer's attention, and how long it "
          "waits");
  t.field("attention_tflops", &T::attention_tflops,
          "--show-context: speed of a rank's attention in TFLOP/s")
      .above(0);
  t.field("link_gbytes_per_s", &T::link_gbytes_per_s,
          "--show-context: bandwidth between two ranks in GB/s, in each direction")
      .above(0);
  t.field("link_latency_us", &T::link_latency_us,
          "--show-context: time of an empty message or collective in microseconds")
      .at_least(0);
}

}  // namespace megatron
