// Rows sorted by group, as grouped GEMMs take them.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>

namespace megatron {

/// Calls use(group, first row, rows[group]) for each group, the empty ones included.
template <class Use>
void for_each_group(c10::ArrayRef<std::int64_t> rows, const Use& use) {
  std::int64_t first = 0;
  for (std::size_t group = 0; group < rows.size(); first += rows[group++])
    use(static_cast<std::int64_t>(group), first, rows[group]);
}

}  // namespace megatron
