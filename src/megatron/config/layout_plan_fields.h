// The flags of `megatron plan` for layouts. `plan` declares them for its help, plan_options.cpp for
// the search.
#pragma once

#include "megatron/config/field_table.h"

namespace megatron {

/// Adds the flags to a table whose options have the members world_size, memory_limit_gib and
/// max_layouts.
template <class T>
void add_layout_plan_fields(FieldTable<T>& t) {
  t.group("Layouts");
  t.field("world_size", &T::world_size,
          "number of ranks: print the layouts of a model over them, with the memory of a rank by "
          "part; sizes of parallelism that are given stay")
      .at_least(1)
      .at_most(1'000'000);
  t.field("memory_limit_gib", &T::memory_limit_gib,
          "memory of a rank in GiB: print the layouts that fit first, those that send least first")
      .above(0);
  t.field("max_layouts", &T::max_layouts, "largest number of layouts to print").at_least(1);
}

}  // namespace megatron
