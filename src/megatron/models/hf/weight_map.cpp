#include "megatron/models/hf/weight_map.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

/// Returns the pattern with a text in place of a mark.
std::string filled(std::string pattern, std::string_view mark, std::string_view text) {
  const auto place = pattern.find(mark);
  if (place != std::string::npos) pattern.replace(place, mark.size(), text);
  return pattern;
}

/// Returns the pattern with what one of our names has in place of {i}, {w} and their like, where
/// the layers of multi-token prediction begin with `first`.
std::string filled_from(std::string_view our_name, std::string pattern, std::int64_t first = 0) {
  constexpr std::string_view kLayers = "layers.";
  const auto place = our_name.find(kLayers);
  std::string_view layer = place == our_name.npos ? "" : our_name.substr(place + kLayers.size());
  layer = layer.substr(0, layer.find('.'));
  if (our_name.starts_with("mtp.layers."))
    pattern =
        filled(std::move(pattern), "{m}", std::to_string(first + std::stoll(std::string(layer))));
  if (const auto number = exact_number<std::int64_t>(layer)) {
    pattern = filled(std::move(pattern), *number % 2 == 0 ? "{2i}" : "{2i+1}", layer);
    pattern = filled(std::move(pattern), "{i/2}", std::to_string(*number / 2));
  }
  return filled(filled(pattern, "{i}", layer), "{w}",
                our_name.ends_with("bias") ? "bias" : "weight");
}

std::int64_t num_runs(const TensorRow& row, const HfDepths& depths) {
  if (row.num_runs == nullptr) return 1;
  MEGATRON_CHECK(depths.model != nullptr, row.theirs, " has runs of a model that is not given");
  return row.num_runs(*depths.model);
}

/// Adds the tensors of the rows that match: those of each expert in turn.
void add_tensors(const HfFamily& family, std::int64_t num_experts, const HfDepths& depths,
                 WeightMapping& mapping) {
  std::vector<const TensorRow*> rows;
  for (const TensorRow& row : family.tensors)
    if (filled_from(mapping.ours, row.ours) == mapping.ours && !row.is_copy &&
        row.is_gated.value_or(depths.is_gated) == depths.is_gated)
      rows.push_back(&row);
  for (std::int64_t expert = 0; expert == 0 || expert < num_experts; ++expert) {
    for (const TensorRow* row : rows) {
      const bool is_by_expert = row->theirs.find("{e}") != std::string::npos;
      if (!is_by_expert && expert > 0) continue;
      (row->is_alternative ? mapping.alternatives : mapping.theirs)
          .push_back({.name = filled(filled_from(mapping.ours, row->theirs, depths.first), "{e}",
                                     std::to_string(expert)),
                      .part = {.blocks = row->blocks,
                               .is_transposed = row->is_transposed,
                               .is_row = row->is_row,
                               .expert = is_by_expert ? std::optional(expert) : std::nullopt,
                               .is_interleaved = row->is_interleaved,
                               .num_runs = num_runs(*row, depths)}});
    }
  }
  for (const TensorRow& row : family.tensors) {
    if (!row.is_copy || row.ours != mapping.ours) continue;
    const std::int64_t count = row.theirs.find("{m}") == std::string::npos ? 1 : depths.count;
    for (std::int64_t layer = depths.first; layer < depths.first + count; ++layer)
      mapping.copies.push_back({.name = filled(row.theirs, "{m}", std::to_string(layer))});
  }
}

/// Throws UserError naming the parameters that would be written to one and the same tensor, as the
/// norms of a dense and of a mixture-of-experts layer.
void require_distinct_tensors(const std::string& model_type,
                              const std::vector<WeightMapping>& mappings) {
  std::map<std::string_view, std::string_view> owners;
  std::vector<std::string> doubled;
  for (const WeightMapping& mapping : mappings) {
    for (const HfTensor& theirs : mapping.theirs) {
      const auto [owner, is_new] = owners.emplace(theirs.name, mapping.ours);
      if (!is_new) doubled.push_back(std::string(owner->second) + " and " + mapping.ours);
    }
  }
  require_no_names("Hugging Face model_type '" + model_type +
                       "' has one tensor for several parameters of the model",
                   doubled, "a layer has either experts or a dense MLP");
}

/// Returns the extents of the tensor that holds the slices.
Shape extents(const std::vector<TensorSlice>& slices) {
  Shape shape = slices.back().local_offset;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) shape[dim] += slices.back().shape[dim];
  return shape;
}

at::Tensor narrowed(at::Tensor tensor, const Shape& offset, const Shape& shape) {
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    tensor = tensor.narrow(static_cast<std::int64_t>(dim), offset[dim], shape[dim]);
  return tensor;
}

}  // namespace

std::vector<TensorSlice> TensorPart::slices(const Sharding& ours) const {
  const Shape zeros(ours.global_shape.size(), 0);
  TensorSlice slice{.global_offset = zeros, .local_offset = zeros, .shape = ours.global_shape};
  if (expert) {
    slice.global_offset[0] = *expert;
    slice.shape[0] = 1;
  }
  if (blocks.count == 0) return {slice};
  const auto split =
      std::ranges::find_if(ours.splits, [](const AxisSplit& s) { return !s.blocks.empty(); });
  const std::size_t end = blocks.first + blocks.count;
  MEGATRON_CHECK(split != ours.splits.end() && end <= split->blocks.size(),
                 "a parameter without block ", end - 1);
  const auto dim = static_cast<std::size_t>(split->dim);
  const std::int64_t run = ours.global_shape[dim] / split->repeats;
  std::vector<TensorSlice> slices;
  std::int64_t rows_of_run = 0;  // of all blocks
  for (std::size_t block = blocks.first; block < end; ++block)
    rows_of_run += split->blocks[block].size * split->repeats / num_runs;
  std::int64_t rows_before = 0;  // in a run
  for (std::size_t block = 0; block < end; ++block) {
    const std::int64_t size = split->blocks[block].size, all = size * split->repeats,
                       rows = all / num_runs, step = std::min(size, rows);
    MEGATRON_CHECK(rows > 0 && all % num_runs == 0, all, " rows in ", num_runs, " runs");
    slice.shape[dim] = step;
    for (std::int64_t row = 0; block >= blocks.first && row < all; row += step) {
      slices.push_back(slice);
      slices.back().global_offset[dim] += row / size * run + row % size;
      slices.back().local_offset[dim] = row / rows * rows_of_run + rows_before + row % rows;
    }
    if (block >= blocks.first) rows_before += rows;
    slice.global_offset[dim] += size;
  }
  return slices;
}

Shape TensorPart::shape(const Sharding& ours) const {
  Shape shape = extents(slices(ours));
  if (expert) shape.erase(shape.begin());
  if (is_transposed && shape.size() > 1) std::swap(shape.back(), shape[shape.size() - 2]);
  if (is_row) shape.insert(shape.begin(), 1);
  return shape;
}

at::Tensor TensorPart::oriented(at::Tensor theirs) const {
  if (is_transposed && theirs.dim() > 1) theirs = theirs.transpose(-2, -1);
  if (is_row) theirs = theirs.squeeze(0);
  return expert ? theirs.unsqueeze(0) : theirs;
}

at::Tensor TensorPart::region(at::Tensor oriented, const Shape& local_offset,
                              const Shape& shape) const {
  Shape offset = local_offset;
  if (is_interleaved) {
    const std::int64_t dim = oriented.dim() - (is_transposed && oriented.dim() > 1 ? 2 : 1),
                       step = static_cast<std::int64_t>(blocks.count),
                       size = oriented.size(dim) / step;
    std::int64_t& first = offset[static_cast<std::size_t>(dim)];
    oriented = oriented.slice(dim, first / size, std::nullopt, step);
    first %= size;
  }
  return narrowed(oriented, offset, shape);
}

at::Tensor TensorPart::cut(const at::Tensor& value, const Sharding& ours) const {
  const std::vector<TensorSlice> parts = slices(ours);
  at::Tensor part = narrowed(value, parts[0].global_offset, parts[0].shape);
  if (parts.size() > 1) {
    part = at::empty(extents(parts), value.options());
    for (const TensorSlice& slice : parts)
      region(part, slice.local_offset, slice.shape)
          .copy_(narrowed(value, slice.global_offset, slice.shape));
  }
  if (expert) part = part.squeeze(0);
  if (is_row) part = part.unsqueeze(0);
  return is_transposed && part.dim() > 1 ? part.transpose(-2, -1) : part;
}

std::vector<WeightMapping> map_weights(const HfFamily& family,
                                       std::span<const std::string> our_names,
                                       std::int64_t num_experts, const HfDepths& depths) {
  std::vector<WeightMapping> mappings;
  std::vector<std::string> homeless;
  for (const std::string& name : our_names) {
    mappings.push_back({.ours = name});
    add_tensors(family, num_experts, depths, mappings.back());
    if (mappings.back().theirs.empty()) homeless.push_back(name);
  }
  require_no_names("Hugging Face model_type '" + family.model_type +
                       "' has no tensors for parameters of the model",
                   homeless,
                   "choose another --hf-model-type, or keep the model in --format megatron");
  require_distinct_tensors(family.model_type, mappings);
  return mappings;
}

bool has_hf_tensor(const HfFamily& family, std::string_view our_name) {
  return std::ranges::any_of(family.tensors, [&](const TensorRow& row) {
    return filled_from(our_name, row.ours) == our_name;
  });
}

std::string full_hf_name(const HfFamily& family, const std::string& name) {
  for (const auto& [old, present] : {std::pair{"LayerNorm.gamma", "LayerNorm.weight"},
                                     std::pair{"LayerNorm.beta", "LayerNorm.bias"}})
    if (name.ends_with(old))
      return full_hf_name(family, name.substr(0, name.rfind("LayerNorm")) + present);
  if (!family.ignored.empty() && name.starts_with(family.ignored)) return name;
  if (!family.other_prefix.empty() && name.starts_with(family.other_prefix))
    return family.prefix + name.substr(family.other_prefix.size());
  const std::string part = name.substr(0, name.find('.') + 1);  // "" without a dot
  const bool has_own_place =
      !part.empty() && std::ranges::any_of(family.tensors, [&](const TensorRow& row) {
        return row.theirs.starts_with(part);
      });
  if (has_own_place || name.starts_with(family.prefix) || name.starts_with("lm_head.")) return name;
  return family.prefix + name;
}

bool is_hf_buffer(const HfFamily& family, std::string_view full_name) {
  return full_name.ends_with("rotary_emb.inv_freq") ||
         (!family.ignored.empty() && full_name.starts_with(family.ignored)) ||
         std::ranges::any_of(family.buffers, [&](const std::string& ending) {
           return full_name.ends_with(ending);
         });
}

std::string hf_embedding_name(const HfFamily& family) {
  const std::string ours[] = {"embedding.word_embeddings.weight"};
  return map_weights(family, ours, 0).front().theirs.front().name;
}

}  // namespace megatron
