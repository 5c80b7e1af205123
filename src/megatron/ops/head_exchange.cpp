#include "megatron/ops/head_exchange.h"

#include <ATen/ops/index_select.h>

#include "megatron/ops/row_exchange.h"

namespace megatron {

at::Tensor HeadExchange::to_heads(const at::Tensor& x, const char* what) const {
  const std::int64_t heads = x.size(2) / axis_.size;
  const at::Tensor parts = x.view({x.size(0), x.size(1), axis_.size, heads, x.size(3)})
                               .permute({2, 0, 1, 3, 4})
                               .reshape({axis_.size * x.size(0), x.size(1), heads, x.size(3)});
  return exchange_rows(axis_, parts, {.out = rows_, .in = rows_}, what);
}

at::Tensor HeadExchange::to_rows(const at::Tensor& x, const char* what) const {
  const std::int64_t rows = rows_.front();
  return exchange_rows(axis_, x.contiguous(), {.out = rows_, .in = rows_}, what)
      .view({axis_.size, rows, x.size(1), x.size(2)})
      .permute({1, 2, 0, 3})
      .reshape({rows, x.size(1), axis_.size * x.size(2)});
}

at::Tensor reordered_rows(const at::Tensor& x, const at::Tensor& order) {
  return x.is_meta() ? x.clone() : at::index_select(x, 0, order);  // which selects none on meta
}

}  // namespace megatron
