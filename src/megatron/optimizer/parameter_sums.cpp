#include "megatron/optimizer/parameter_sums.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "megatron/base/error.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/optimizer/copy_to_device.h"
#include "megatron/optimizer/optimizer_operations.h"
#include "megatron/parallel/comm.h"
#include "megatron/params/param_store.h"

namespace megatron {
namespace {

using kernels::kChunkElements;
using kernels::kStateBlock;

/// Position of a parameter in its bucket; each rank's slice of the bucket has `slice` elements.
struct BucketRange {
  std::int64_t offset, size, slice;
  std::int64_t rank;  ///< the slice of this rank
};

/// Calls run(begin, end, level, owner) in ascending order for the largest subtrees of a chunk's
/// blocks that lie in one slice. [begin, end) are elements of the parameter.
template <class Run>
void for_each_subtree(const BucketRange& bucket_range, std::int64_t chunk_begin, const Run& run) {
  const std::int64_t chunk_end = std::min(chunk_begin + kChunkElements, bucket_range.size);
  for (std::int64_t begin = chunk_begin; begin < chunk_end;) {
    const std::int64_t owner = (bucket_range.offset + begin) / bucket_range.slice,
                       cut = (owner + 1) * bucket_range.slice - bucket_range.offset;
    const bool ends = cut >= chunk_end;
    std::int64_t block = (begin - chunk_begin) / kStateBlock;
    const std::int64_t last =
        ends ? kChunkElements / kStateBlock
             : (cut - chunk_begin) / kStateBlock;  // blocks past the parameter's end are zero
    while (block < last && chunk_begin + block * kStateBlock < chunk_end) {
      std::int32_t level =
          block == 0 ? kernels::kChunkLevel : std::countr_zero(static_cast<std::uint64_t>(block));
      while (block + (std::int64_t{1} << level) > last) --level;
      const std::int64_t first = chunk_begin + block * kStateBlock;
      block += std::int64_t{1} << level;
      run(first, std::min(chunk_begin + block * kStateBlock, chunk_end), level, owner);
    }
    begin = ends ? chunk_end : cut;
  }
}

/// Returns each parameter's first slot and the total count. Parameters of other ranks have no
/// slots.
std::vector<std::int64_t> first_slots(const std::vector<std::string>& names,
                                      const ParamStore& store, const SumLayout& layout) {
  std::vector<std::int64_t> first{0};
  std::size_t mine = 0;
  for (const std::string& name : names) {
    const Parameter* parameter = store.find(name);
    if (parameter != nullptr && parameter->is_trained()) ++mine;
    first.push_back(layout.first_slot[mine]);
  }
  return first;
}

bool is_expert(const Parameter& parameter) {
  return parameter.is_trained() && parameter.spec().tags.expert;
}

at::Tensor indices(const std::vector<std::int64_t>& numbers, c10::Device device) {
  return copy_to_device(numbers, device).view(at::kLong);
}

/// Elements [begin, end) of a flattened local tensor that this rank excludes from statistics of the
/// whole model.
struct SkippedElements {
  std::int64_t begin = 0, end = 0;
};
/// Returns the padding and the elements that a lower rank of one of the parameter's axes counts.
SkippedElements skipped_elements(const Parameter& parameter) {
  const Shape local = parameter.local_shape();
  const std::int64_t size = num_elements(local);
  const std::vector<TensorSlice> owned = parameter.owned_slices();
  std::int64_t counted = 0;
  for (const TensorSlice& slice : owned) counted += num_elements(slice.shape);
  if (counted == size) return {};
  if (counted == 0) return {0, size};
  for (const TensorSlice& slice : owned) {
    MEGATRON_CHECK(std::equal(slice.shape.begin() + 1, slice.shape.end(), local.begin() + 1),
                   parameter.name(), ": elements that another rank counts are not whole rows");
  }
  const std::int64_t row = size / local[0];
  SkippedElements gap;
  const auto leave_out = [&](std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    MEGATRON_CHECK(gap.begin == gap.end, parameter.name(),
                   ": rows that another rank counts are not contiguous");
    gap = {begin * row, end * row};
  };
  std::int64_t rows = 0;
  for (const TensorSlice& slice : owned) {
    leave_out(rows, slice.local_offset[0]);
    rows = slice.local_offset[0] + slice.shape[0];
  }
  leave_out(rows, local[0]);
  return gap;
}

}  // namespace

SumLayout sum_layout(const ParamStore& store) {
  std::unordered_map<const Parameter*, BucketRange> bucket_ranges;
  for (const ParamBucket& bucket : store.buckets()) {
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i)
      bucket_ranges[bucket.parameters[i]] = {bucket.offsets[i],
                                             num_elements(bucket.parameters[i]->local_shape()),
                                             bucket.own_size, bucket.own_begin / bucket.own_size};
  }
  SumLayout layout;
  std::size_t piece = 0;
  for (const Parameter* parameter : store.parameters()) {
    if (!parameter->is_trained()) continue;
    const BucketRange& bucket_range = bucket_ranges.at(parameter);
    layout.first_slot.push_back(static_cast<std::int64_t>(layout.slots.size()));
    const bool is_mine =
        piece < store.pieces().size() && store.pieces()[piece].parameter == parameter;
    for (std::int64_t chunk = 0; chunk < bucket_range.size; chunk += kChunkElements) {
      for_each_subtree(
          bucket_range, chunk,
          [&](std::int64_t begin, std::int64_t end, std::int32_t level, std::int64_t owner) {
            const auto slot = static_cast<std::int64_t>(layout.slots.size());
            layout.slots.push_back(
                {level, end == std::min(chunk + kChunkElements, bucket_range.size)});
            if (is_mine && owner == bucket_range.rank)
              layout.ranges.push_back(
                  {piece, begin - store.pieces()[piece].first, end - begin, slot});
          });
    }
    if (is_mine) ++piece;
  }
  layout.first_slot.push_back(static_cast<std::int64_t>(layout.slots.size()));
  return layout;
}

ParameterSums::ParameterSums(const ParamStore& store)
    : store_(store), names_(all_parameter_names(store, [](const Parameter& parameter) {
        return parameter.is_trained();
      })) {
  SumLayout layout = sum_layout(store);
  const auto numbers = at::TensorOptions().dtype(at::kDouble).device(store.device());
  slots_ = copy_to_device(layout.slots, store.device());
  const std::vector<std::int64_t> first = first_slots(names_, store, layout);
  first_slot_ = copy_to_device(first, store.device());
  sums_ = at::zeros({static_cast<std::int64_t>(layout.slots.size())}, numbers);
  parameter_sums_ = at::zeros({static_cast<std::int64_t>(names_.size())}, numbers);
  ranges_ = std::move(layout.ranges);
  if (store.groups().size() == 1) return;
  std::vector<std::int64_t> slots, parameters;
  for (const std::string& name : all_parameter_names(store, is_expert)) {
    const auto index = std::ranges::lower_bound(names_, name) - names_.begin();
    parameters.push_back(index);
    for (std::int64_t slot = first[index]; slot < first[index + 1]; ++slot) slots.push_back(slot);
  }
  expert_slots_ = indices(slots, store.device());
  expert_parameters_ = indices(parameters, store.device());
}

kernels::GradientChunk ParameterSums::chunk(std::size_t index, const at::Tensor& tensor) const {
  const SumRange& range = ranges_[index];
  const ParameterPiece& piece = store_.pieces()[range.piece];
  MEGATRON_CHECK(tensor.is_contiguous() && tensor.numel() == piece.count, tensor.sizes(),
                 " with strides ", tensor.strides(), " for a piece of ", piece.count);
  const SkippedElements skipped = skipped_elements(*piece.parameter);
  const auto within = [&](std::int64_t element) {
    return std::clamp<std::int64_t>(element - piece.first - range.begin, 0, range.count);
  };
  const auto offset = static_cast<std::size_t>(range.begin) * tensor.element_size();
  return {.grad = static_cast<const char*>(tensor.const_data_ptr()) + offset,
          .count = range.count,
          .slot = range.slot,
          .skip_begin = within(skipped.begin),
          .skip_end = within(skipped.end)};
}

kernels::StatisticsPlan ParameterSums::plan(const std::vector<at::Tensor>& tensors,
                                            at::Tensor& table) const {
  MEGATRON_CHECK(tensors.size() == store_.pieces().size(), tensors.size(), " tensors for ",
                 store_.pieces().size(), " pieces");
  std::vector<kernels::GradientChunk> chunks;
  const auto first = std::ranges::find_if(tensors, &at::Tensor::defined);
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const at::Tensor& tensor = tensors[ranges_[i].piece];
    if (tensor.defined()) chunks.push_back(chunk(i, tensor));
  }
  table = copy_to_device(chunks, store_.device());
  return {.chunks = static_cast<const kernels::GradientChunk*>(table.const_data_ptr()),
          .num_chunks = static_cast<std::int64_t>(chunks.size()),
          .grad = first == tensors.end() ? kernels::Type::f32 : kernel_type(first->scalar_type()),
          .table = {.slots = static_cast<const kernels::SumSlot*>(slots_.const_data_ptr()),
                    .first_slot = static_cast<const std::int64_t*>(first_slot_.const_data_ptr()),
                    .num_parameters = static_cast<std::int64_t>(names_.size())},
          .sums = static_cast<double*>(sums_.mutable_data_ptr()),
          .parameter_sums = static_cast<double*>(parameter_sums_.mutable_data_ptr())};
}

void ParameterSums::run(const std::function<void(const kernels::StatisticsPlan&)>& measure,
                        const kernels::StatisticsPlan& plan) const {
  const auto shard = [](const ReplicaGroups& groups) -> const Axis& {
    return updating_ranks(groups.data_parallel);
  };
  const auto model = [](const ReplicaGroups& groups) -> const Axis& { return groups.model; };
  const bool is_sharded = std::ranges::any_of(
      store_.groups(), [&](const ReplicaGroups& groups) { return shard(groups).size > 1; });
  if (is_sharded) at::Tensor(sums_).zero_();  // slots of other ranks: adding zero is exact
  measure(plan);
  all_reduce(sums_, expert_slots_, shard, "sums over gradients");
  optimizer_operations(store_.device()).reduce_sums(plan);
  all_reduce(parameter_sums_, expert_parameters_, model, "sums over parameters");
}

void ParameterSums::all_reduce(at::Tensor values, const at::Tensor& experts,
                               const Axis& (*axis_of)(const ReplicaGroups&),
                               const char* what) const {
  const at::Tensor of_experts = experts.defined() ? values.index_select(0, experts) : at::Tensor();
  const Axis &dense = axis_of(store_.groups().front()), &expert = axis_of(store_.groups().back());
  if (dense.size > 1) dense.comm->all_reduce(values, what);
  if (!of_experts.defined()) return;
  if (expert.size > 1) expert.comm->all_reduce(of_experts, what);
  values.index_copy_(0, experts, of_experts);
}

std::vector<double> ParameterSums::norms() const {
  const at::Tensor squares = parameter_sums_.cpu();
  std::vector<double> norms(squares.const_data_ptr<double>(),
                            squares.const_data_ptr<double>() + squares.numel());
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

std::vector<at::Tensor> piece_gradients(const ParamStore& store) {
  std::vector<at::Tensor> gradients;
  for (const ParameterPiece& piece : store.pieces())
    gradients.push_back(
        piece.of_own(store.buckets()[piece.bucket].own_grad, store.buckets()[piece.bucket]));
  return gradients;
}

std::vector<double> parameter_norms(const ParameterSums& sums, const ParamStore& store,
                                    const std::vector<at::Tensor>& tensors) {
  at::Tensor table;
  const kernels::StatisticsPlan plan = sums.plan(tensors, table);
  sums.run(optimizer_operations(store.device()).sum_squares, plan);
  return sums.norms();
}

}  // namespace megatron
