// The flags of `megatron plan --memory`. `plan` declares them for its help, plan_options.cpp for
// the prediction.
#pragma once

#include "megatron/config/field_table.h"

namespace megatron {

/// Adds the flags to a table whose options have the member `memory`.
template <class T>
void add_memory_plan_fields(FieldTable<T>& t) {
  t.group("Memory");
  t.field("memory", &T::memory,
          "with the flags of a run: print the memory of a rank by part, as --log-memory measures "
          "it; without --world-size of the fewest ranks that the sizes of parallelism allow");
}

}  // namespace megatron
