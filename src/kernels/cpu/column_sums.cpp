#include "kernels/cpu/column_sums.h"

#include <algorithm>

#include "kernels/cpu/storage_types.h"

namespace megatron::kernels {
namespace {

template <class X>
void add_rows(const RowBlocksArguments& a, std::int64_t begin, std::int64_t end) {
  using C = portable::Compute<X>;
  for (std::int64_t block = begin; block < end; ++block) {
    C* sums = static_cast<C*>(a.blocks) + block * a.columns;
    std::fill_n(sums, a.columns, C(0));
    for (std::int64_t row = block * kRowsPerBlock;
         row < std::min(a.rows, (block + 1) * kRowsPerBlock); ++row) {
      const X* x = static_cast<const X*>(a.x) + row * a.columns;
      for (std::int64_t c = 0; c < a.columns; ++c) sums[c] += portable::load(x[c]);
    }
  }
}

template <class C>
void add_columns(const ColumnSumsArguments& a, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kStripe = 256;
  double total[kStripe];
  for (std::int64_t first = begin; first < end; first += kStripe) {
    const std::int64_t count = std::min(kStripe, end - first);
    std::fill_n(total, count, 0.0);
    for (std::int64_t block = 0; block < a.num_blocks; ++block) {
      const C* partial = static_cast<const C*>(a.blocks) + block * a.columns + first;
      for (std::int64_t c = 0; c < count; ++c) total[c] += static_cast<double>(partial[c]);
    }
    for (std::int64_t c = 0; c < count; ++c)
      static_cast<C*>(a.sums)[first + c] = static_cast<C>(total[c]);
  }
}

}  // namespace

void sum_row_blocks(const RowBlocksArguments& arguments, std::int64_t begin, std::int64_t end) {
  portable::with_type(arguments.type,
                      [&](auto x) { add_rows<decltype(x)>(arguments, begin, end); });
}

void add_row_blocks(const ColumnSumsArguments& arguments, std::int64_t begin, std::int64_t end) {
  if (arguments.type == Type::f64) return add_columns<double>(arguments, begin, end);
  add_columns<float>(arguments, begin, end);
}

}  // namespace megatron::kernels
