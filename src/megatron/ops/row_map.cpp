#include "megatron/ops/row_map.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "kernels/cpu/row_sums.h"
#include "megatron/base/error.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/operator.h"
#include "megatron/ops/parallel_kernel.h"

namespace megatron {
namespace {

std::int64_t columns_of(const at::Tensor& x) {
  return x.dim() == 1 ? 1 : x.numel() / std::max<std::int64_t>(x.size(0), 1);
}

at::Tensor empty_rows(const at::Tensor& like, std::int64_t rows) {
  at::DimVector shape(like.sizes());
  shape[0] = rows;
  return at::empty(shape, like.options());
}

at::Tensor gather_on_cpu(const at::Tensor& input, const at::Tensor& source) {
  const at::Tensor x = input.contiguous();
  at::Tensor out = empty_rows(x, source.size(0));
  if (out.numel() == 0) return out;
  const std::int64_t columns = columns_of(out);
  parallel_kernel(
      kernels::row_sum_kernels().gather,
      kernels::GatherRowsArguments{.in = x.const_data_ptr(),
                                   .out = out.mutable_data_ptr(),
                                   .source = source.const_data_ptr<std::int32_t>(),
                                   .bytes = columns * static_cast<std::int64_t>(x.element_size())},
      source.size(0), columns);
  return out;
}

at::Tensor gather_by_aten(const at::Tensor& x, const at::Tensor& source) {
  if (x.size(0) == 0) return empty_rows(x, source.size(0)).zero_();  // padding alone
  const at::Tensor rows = x.index_select(0, source.clamp_min(0).to(at::kLong));
  at::DimVector shape(rows.dim(), 1);
  shape[0] = source.size(0);
  return rows.masked_fill((source < 0).view(shape), 0);
}

at::Tensor sum_on_cpu(const at::Tensor& input, const at::Tensor& offsets,
                      const at::Tensor& summands, const at::Tensor& folds) {
  const at::Tensor y = input.contiguous();
  at::Tensor out = empty_rows(y, offsets.size(0) - 1);
  if (out.numel() == 0) return out;
  const std::int64_t columns = columns_of(out);
  parallel_kernel(kernels::row_sum_kernels().sum,
                  kernels::SumRowsArguments{.in = y.const_data_ptr(),
                                            .out = out.mutable_data_ptr(),
                                            .offsets = offsets.const_data_ptr<std::int32_t>(),
                                            .rows = summands.const_data_ptr<std::int32_t>(),
                                            .folds = folds.const_data_ptr<std::uint8_t>(),
                                            .type = kernel_type(y.scalar_type()),
                                            .columns = columns},
                  out.size(0), columns * (1 + summands.size(0) / out.size(0)));
  return out;
}

/// Adds in the order of the summands, not by their tree.
at::Tensor sum_by_aten(const at::Tensor& y, const at::Tensor& offsets, const at::Tensor& summands,
                       const at::Tensor& /*folds*/) {
  const at::Tensor ends = offsets.to(at::kLong);
  const std::int64_t sources = offsets.size(0) - 1;
  const at::Tensor owner =
      at::repeat_interleave(ends.narrow(0, 1, sources) - ends.narrow(0, 0, sources));
  at::Tensor out = empty_rows(y, sources).to(compute_type(y.scalar_type())).zero_();
  return out.index_add_(0, owner, y.index_select(0, summands.to(at::kLong)).to(out.scalar_type()))
      .to(y.scalar_type());
}

at::Tensor gather_on_meta(const at::Tensor& x, const at::Tensor& source) {
  return empty_rows(x, source.size(0));
}

at::Tensor sum_on_meta(const at::Tensor& y, const at::Tensor& offsets,
                       const at::Tensor& /*summands*/, const at::Tensor& /*folds*/) {
  return empty_rows(y, offsets.size(0) - 1);
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<gather_on_cpu>(library, "gather_rows");
  register_kernel<gather_by_aten>(library, "gather_rows", kAnyDevice);
  register_kernel<gather_on_meta>(library, "gather_rows", kMetaDevice);
  define_operator<sum_on_cpu>(library, "sum_rows");
  register_kernel<sum_by_aten>(library, "sum_rows", kAnyDevice);
  register_kernel<sum_on_meta>(library, "sum_rows", kMetaDevice);
}

/// Returns a map without values.
RowMap allocate_map(std::int64_t sources, std::int64_t rows, std::int64_t copies,
                    const at::TensorOptions& ints) {
  return {.source = at::empty({rows}, ints),
          .choice = at::empty({rows}, ints),
          .offsets = at::empty({sources + 1}, ints),
          .summands = at::empty({copies}, ints),
          .folds = at::empty({copies}, ints.dtype(at::kByte))};
}

/// The summands of one source, as they are added.
class SumTree {
 public:
  SumTree(std::span<const std::uint64_t> codes, std::int32_t* summands, std::uint8_t* folds)
      : codes_(codes), summands_(summands), folds_(folds) {}

  void begin_source() { depths_.clear(), is_first_ = true; }

  /// Appends a copy in `row`. All sums that the tree has below the step to this slot are added
  /// first.
  void add(std::int32_t slot, std::int32_t row) {
    const std::uint64_t code = codes_[static_cast<std::size_t>(slot)];
    if (!is_first_) {
      const int depth = std::countl_zero(code ^ last_code_);
      fold_deeper_than(depth);
      depths_.push_back(depth);
    }
    last_code_ = code;
    is_first_ = false;
    summands_[size_] = row;
    folds_[size_++] = 0;
    MEGATRON_CHECK(depths_.size() + 1 < kernels::kMostPartialSums,
                   "a sum of too many experts: ", depths_.size(), " partial sums");
  }
  void end_source() { fold_deeper_than(-1); }
  std::int32_t size() const { return static_cast<std::int32_t>(size_); }

 private:
  static constexpr int kSameSlot = 64;  ///< std::countl_zero(0)

  void fold_deeper_than(int depth) {
    // Copies of one slot's result (those of etp) have no depth: they are added one by one.
    const auto is_below = [&](int other) {
      return other > depth || (other == kSameSlot && depth == kSameSlot);
    };
    for (; !depths_.empty() && is_below(depths_.back()); depths_.pop_back()) ++folds_[size_ - 1];
  }

  std::span<const std::uint64_t> codes_;
  std::int32_t* summands_;
  std::uint8_t* folds_;
  std::size_t size_ = 0;
  std::vector<int> depths_;  ///< depth of the tree between neighbouring partial sums
  std::uint64_t last_code_ = 0;
  bool is_first_ = true;
};

}  // namespace

std::vector<std::uint64_t> halving_codes(std::int64_t count) {
  std::vector<std::uint64_t> codes(static_cast<std::size_t>(count), 0);
  for (std::int64_t e = 0; e < count; ++e) {
    std::int64_t first = 0, last = count;
    for (std::uint64_t bit = std::uint64_t{1} << 63; last - first > 1; bit >>= 1) {
      const std::int64_t middle = first + (last - first) / 2;
      if (e < middle) {
        last = middle;
      } else {
        first = middle;
        codes[static_cast<std::size_t>(e)] |= bit;
      }
    }
  }
  return codes;
}

SlotMap sort_by_slot(const at::Tensor& choices, std::span<const std::uint64_t> codes,
                     std::int64_t least) {
  MEGATRON_CHECK(choices.is_cpu() && choices.scalar_type() == at::kInt && choices.dim() == 2,
                 "choices of slots are no matrix of int32 on the CPU: ", choices.sizes(), " ",
                 choices.scalar_type());
  const at::Tensor all = choices.contiguous();
  const std::int64_t sources = all.size(0), each = all.size(1);
  const auto* slots = all.const_data_ptr<std::int32_t>();
  SlotMap result{.map = {}, .counts = std::vector<std::int64_t>(codes.size(), 0)};
  for (std::int64_t i = 0; i < sources * each; ++i) {
    MEGATRON_CHECK(slots[i] < static_cast<std::int32_t>(codes.size()), "there is no slot ",
                   slots[i], " of ", codes.size());
    if (slots[i] >= 0) ++result.counts[static_cast<std::size_t>(slots[i])];
  }
  const std::int64_t copies =
      std::accumulate(result.counts.begin(), result.counts.end(), std::int64_t{0});
  for (std::int64_t& count : result.counts) count = std::max(count, least);
  std::vector<std::int64_t> next(codes.size(), 0);
  std::exclusive_scan(result.counts.begin(), result.counts.end(), next.begin(), std::int64_t{0});
  const std::int64_t rows =
      std::accumulate(result.counts.begin(), result.counts.end(), std::int64_t{0});
  RowMap& map = result.map;
  MEGATRON_CHECK(std::max(sources * each, rows) <= std::numeric_limits<std::int32_t>::max(),
                 "a map of ", rows, " rows from ", sources * each, " choices");
  map = allocate_map(sources, rows, copies, all.options());
  if (rows > copies) {
    map.source.fill_(-1);
    map.choice.fill_(-1);
  }
  auto *source = map.source.mutable_data_ptr<std::int32_t>(),
       *choice = map.choice.mutable_data_ptr<std::int32_t>(),
       *offsets = map.offsets.mutable_data_ptr<std::int32_t>();
  SumTree tree(codes, map.summands.mutable_data_ptr<std::int32_t>(),
               map.folds.mutable_data_ptr<std::uint8_t>());
  for (std::int64_t t = 0; t < sources; ++t) {
    offsets[t] = tree.size();
    tree.begin_source();
    for (std::int64_t i = t * each; i < (t + 1) * each; ++i) {
      if (slots[i] < 0) continue;
      const auto row = static_cast<std::int32_t>(next[static_cast<std::size_t>(slots[i])]++);
      source[row] = static_cast<std::int32_t>(t);
      choice[row] = static_cast<std::int32_t>(i);
      tree.add(slots[i], row);
    }
    tree.end_source();
  }
  offsets[sources] = tree.size();
  return result;
}

SlotMap even_map(std::int64_t sources, std::int64_t copies, std::int64_t slots, std::int64_t least,
                 c10::Device device) {
  SlotMap result;
  std::int64_t rows = 0;
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const std::int64_t own = copies * (slot + 1) / slots - copies * slot / slots;
    result.counts.push_back(std::max(own, least));
    rows += result.counts.back();
  }
  result.map = allocate_map(sources, rows, copies, at::TensorOptions(at::kInt).device(device));
  return result;
}

at::Tensor gather_rows(const at::Tensor& x, const RowMap& map) {
  static const Operator<gather_on_cpu> op("megatron::gather_rows");
  MEGATRON_CHECK(x.size(0) == map.num_sources(), "a map of ", map.num_sources(), " rows was given ",
                 x.size(0));
  return op(x, map.source);
}

at::Tensor sum_rows(const at::Tensor& y, const RowMap& map) {
  static const Operator<sum_on_cpu> op("megatron::sum_rows");
  MEGATRON_CHECK(y.size(0) == map.num_rows(), "a map of ", map.num_rows(), " copies was given ",
                 y.size(0));
  return op(y, map.offsets, map.summands, map.folds);
}

at::Tensor gather_choices(const at::Tensor& values, const RowMap& map) {
  static const Operator<gather_on_cpu> op("megatron::gather_rows");
  return op(values.reshape({-1}), map.choice);
}

at::Tensor sum_choices(const at::Tensor& dvalues, const RowMap& map, std::int64_t choices) {
  at::Tensor sums = at::zeros({map.num_sources() * choices}, dvalues.options());
  if (sums.numel() == 0) return sums.view({map.num_sources(), choices});  // padding alone
  sums.index_add_(0, map.choice.clamp_min(0).to(at::kLong), dvalues.masked_fill(map.choice < 0, 0));
  return sums.view({map.num_sources(), choices});
}

}  // namespace megatron
