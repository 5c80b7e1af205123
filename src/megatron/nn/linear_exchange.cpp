// t ranks, m rows per rank. A chunk is the same run of rows in every rank's slice, so that each
// rank sends as much as it receives.
#include "megatron/nn/linear_exchange.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/ops/matmul.h"
#include "megatron/parallel/collectives.h"

namespace megatron {
namespace {

struct Run {
  std::int64_t begin, count;
};

std::vector<Run> runs_of(std::int64_t rows, std::int64_t chunks) {
  chunks = std::clamp<std::int64_t>(chunks, 1, std::max<std::int64_t>(rows, 1));
  std::vector<Run> runs;
  for (std::int64_t index = 0; index < chunks; ++index) {
    const std::int64_t begin = rows * index / chunks;
    runs.push_back({begin, rows * (index + 1) / chunks - begin});
  }
  return runs;
}

/// Returns a chunk of x [t·m, k] as a view [t, count, k]: the same run of rows of every rank.
at::Tensor run_of_each(const at::Tensor& x, const Run& run, const Axis& axis) {
  return x.view({axis.size, -1, x.size(1)}).narrow(1, run.begin, run.count);
}

std::int64_t slice_rows(const at::Tensor& x, const Axis& axis) {
  MEGATRON_CHECK(x.size(0) % axis.size == 0, x.size(0), " rows cannot be split over ", axis.name,
                 "=", axis.size);
  return x.size(0) / axis.size;
}

at::Tensor summed_and_scattered(const at::Tensor& x, const at::Tensor& b,
                                const std::vector<Run>& runs, const RowGroup& group) {
  const at::Tensor out = at::empty({slice_rows(x, group.axis), b.size(1)}, x.options());
  std::vector<PendingTensor> under_way;
  for (const Run& run : runs) {
    const at::Tensor part =
        matmul(run_of_each(x, run, group.axis).reshape({-1, x.size(1)}), b, x.scalar_type());
    under_way.push_back(start_reduce_scatter(group.axis, part, group.what));
  }
  for (std::size_t i = 0; i < runs.size(); ++i)
    out.narrow(0, runs[i].begin, runs[i].count).copy_(under_way[i].wait());
  return out;
}

}  // namespace

at::Tensor all_gather_matmul(const at::Tensor& x, const at::Tensor& b, const at::Tensor& bias,
                             const RowGroup& group, at::Tensor* all) {
  const std::vector<Run> runs = runs_of(x.size(0), group.chunks);
  const std::int64_t rows = x.size(0) * group.axis.size;
  if (runs.size() == 1) {
    const at::Tensor gathered = all_gather(group.axis, x, group.what);
    if (all != nullptr) *all = gathered;
    return matmul(gathered, b, x.scalar_type(), bias);
  }
  std::vector<PendingTensor> arriving;
  for (const Run& run : runs)
    arriving.push_back(start_all_gather(group.axis, x.narrow(0, run.begin, run.count), group.what));
  const at::Tensor y = at::empty({rows, b.size(1)}, x.options());
  if (all != nullptr) *all = at::empty({rows, x.size(1)}, x.options());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto put = [&](const at::Tensor& whole, const at::Tensor& part) {
      run_of_each(whole, runs[i], group.axis)
          .copy_(part.view({group.axis.size, runs[i].count, -1}));
    };
    const at::Tensor piece = arriving[i].wait();
    put(y, matmul(piece, b, x.scalar_type(), bias));
    if (all != nullptr) put(*all, piece);
  }
  return y;
}

at::Tensor matmul_reduce(const at::Tensor& x, const at::Tensor& b, bool scatter,
                         const RowGroup& group) {
  const std::vector<Run> runs =
      runs_of(scatter ? slice_rows(x, group.axis) : x.size(0), group.chunks);
  if (runs.size() == 1) {
    at::Tensor part = matmul(x, b, x.scalar_type());
    if (scatter) return reduce_scatter(group.axis, part, group.what);
    all_reduce_(group.axis, part, group.what);
    return part;
  }
  if (scatter) return summed_and_scattered(x, b, runs, group);
  const at::Tensor out = at::empty({x.size(0), b.size(1)}, x.options());
  std::vector<PendingTensor> under_way;
  for (const Run& run : runs) {
    at::Tensor part = out.narrow(0, run.begin, run.count);
    matmul_out(part, x.narrow(0, run.begin, run.count), b, /*accumulate=*/false);
    under_way.push_back(start_all_reduce_(group.axis, part, group.what));
  }
  for (PendingTensor& sum : under_way) sum.wait();
  return out;
}

}  // namespace megatron
