// The flags of `megatron plan` for layouts. `plan` declares them for its help, plan_options.cpp for
// the search.
#pragma once

#include "megatron/config/field_table.h"

namespace megatron {

/// What a run may take of a GPU with 80 GiB: the CUDA context, NCCL's buffers and gaps take the
/// rest.
inline constexpr double kMemoryLimitGib = 72;

/// Adds the flags to a table whose options have the members world_size, gpus_per_host,
/// memory_limit_gib and max_layouts.
template <class T>
void add_layout_plan_fields(FieldTable<T>& t) {
  t.group("Layouts");
  t.field(
       "world_size", &T::world_size,
       "number of ranks: print the layouts of a model over them, the best first, with the memory "
       "of a rank by part; sizes of parallelism that are given stay")
      .at_least(1)
      .at_most(1'000'000);
  t.field("gpus_per_host", &T::gpus_per_host,
          "number of ranks on a host: tensor times context parallelism stays within it, unless "
          "their sizes are given")
      .at_least(1);
  t.field("memory_limit_gib", &T::memory_limit_gib,
          "memory of a rank in GiB: layouts that need more come last")
      .above(0);
  t.field("max_layouts", &T::max_layouts, "largest number of layouts to print").at_least(1);
}

}  // namespace megatron
